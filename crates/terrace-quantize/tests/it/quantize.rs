//! Quantised files, compared with those of llama.cpp's own quantiser, byte by byte.

use std::ffi::CString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_ggml::gguf;
use terrace_ggml::llama::FileType;
use terrace_ggml::quantize::{WeightType, dequantize_into};
use terrace_ggml::testing::quantize::ByLlama;
use terrace_quantize::{Disk, QuantizeError, QuantizeOptions, QuantizePlan};
use terrace_testkit::{Arch, Spec};

/// A small model in F16.
fn model(dir: &TempDir, arch: Arch) -> PathBuf {
    let spec = Spec { layers: 2, expert_ff: 256, ..Spec::new(arch) }.with_type(WeightType::F16);
    terrace_testkit::write(&spec, dir.path().join("f16.gguf")).unwrap()
}

fn file_type(name: &str) -> FileType {
    name.parse().unwrap()
}

fn write(options: &QuantizeOptions, out: &Path) -> Result<(), QuantizeError> {
    let plan = QuantizePlan::new(&QuantizeOptions { overwrite: true, ..options.clone() })?;
    let mut last = 0;
    let written = plan.write(out, &mut |progress| {
        assert!(progress.done.bytes() > last && progress.done <= progress.total);
        last = progress.done.bytes();
        ControlFlow::Continue(())
    })?;
    assert_eq!(last, plan.old_size().bytes());
    assert_eq!(written.size, plan.file_size()?);
    assert_eq!(fs::metadata(out).unwrap().len(), written.size.bytes());
    Ok(())
}

/// Quantises with both and asserts that the files are the same.
#[track_caller]
fn same(options: &QuantizeOptions, by_llama: &ByLlama<'_>, dir: &TempDir) {
    let (ours, theirs) = (dir.path().join("ours.gguf"), dir.path().join("theirs.gguf"));
    by_llama.run(&options.input, &theirs, options.file_type).unwrap();
    write(options, &ours).unwrap();
    let (ours, theirs) = (fs::read(ours).unwrap(), fs::read(theirs).unwrap());
    let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert!(
        ours == theirs,
        "{}: lengths {} and {}, first at {first:?}",
        options.file_type,
        ours.len(),
        theirs.len()
    );
}

#[test]
fn files_are_llama_cpps() {
    let dir = TempDir::new().unwrap();
    for arch in [Arch::Qwen3Moe, Arch::Llama] {
        let input = model(&dir, arch);
        for name in ["Q4_K_M", "Q8_0", "Q3_K_L", "IQ4_XS", "Q5_1", "BF16", "F32"] {
            same(&QuantizeOptions::new(&input, file_type(name)), &ByLlama::default(), &dir);
        }
        let options =
            QuantizeOptions { pure: true, threads: 1, ..QuantizeOptions::new(&input, file_type("Q6_K")) };
        same(&options, &ByLlama { pure: true, ..ByLlama::default() }, &dir);
        let named = dir.path().join("named.gguf");
        fs::rename(dir.path().join("ours.gguf"), &named).unwrap();
        same(&QuantizeOptions::new(&named, FileType::COPY), &ByLlama::default(), &dir);
    }
}

#[test]
fn rules_are_followed_as_llama_cpp_follows_them() {
    let dir = TempDir::new().unwrap();
    let input = model(&dir, Arch::Qwen3Moe);
    let given = [
        ("ffn_down_exps", WeightType::Q8_0),
        ("blk\\.0\\.ffn", WeightType::Q3_K),
        ("attn_v", WeightType::F16),
    ];
    let mut options = QuantizeOptions::new(&input, file_type("Q4_K_M"));
    options.rules = given.iter().map(|(p, ty)| format!("{p}={}", ty.name()).parse().unwrap()).collect();
    same(&options, &ByLlama { given: &given, ..ByLlama::default() }, &dir);

    // For file types with which llama.cpp would ignore rules: all other tensors are the same as
    // without rules.
    for (name, rest) in [("COPY", "f16"), ("BF16", "bf16")] {
        options.file_type = file_type(name);
        let plan = QuantizePlan::new(&options).unwrap();
        for tensor in plan.tensors() {
            let expected = given.iter().find(|(p, _)| tensor.from.name.contains(&p.replace('\\', "")));
            let stays = tensor.from.ty.name == "f32";
            let expected =
                expected.filter(|_| !stays).map_or(if stays { "f32" } else { rest }, |(_, ty)| ty.name());
            assert_eq!(tensor.ty(), expected, "{name}: {}", tensor.from.name);
        }
    }

    options.rules = vec!["ffn_nothing=q8_0".parse().unwrap()];
    assert!(matches!(QuantizePlan::new(&options), Err(QuantizeError::UnusedRule { .. })));
    options.rules = vec!["attn_norm=q8_0".parse().unwrap()];
    let plan = QuantizePlan::new(&options).unwrap();
    assert!(plan.warnings().iter().any(|w| w.contains("attn_norm=q8_0")), "{:?}", plan.warnings());
}

#[test]
fn importance_is_used_as_llama_cpp_uses_it() {
    let dir = TempDir::new().unwrap();
    let input = model(&dir, Arch::Qwen3Moe);
    let mut options = QuantizeOptions::new(&input, file_type("IQ3_XXS"));
    let refused = write(&options, &dir.path().join("out.gguf")).unwrap_err();
    assert!(matches!(refused, QuantizeError::NeedsImportance { given: false, .. }), "{refused}");

    let values = importance(&input);
    let file = dir.path().join("imatrix.dat");
    fs::write(&file, legacy(&values)).unwrap();
    options.imatrix = Some(file.clone());
    let name = CString::new(file.as_os_str().as_encoded_bytes()).unwrap();
    let by_llama = ByLlama { importance: Some((&values, &name)), ..ByLlama::default() };
    for name in ["IQ3_XXS", "Q4_0", "Q2_K_S"] {
        options.file_type = file_type(name);
        same(&options, &by_llama, &dir);
    }

    fs::write(&file, legacy(&values[..1])).unwrap();
    let refused = write(&options, &dir.path().join("out.gguf")).unwrap_err();
    assert!(matches!(refused, QuantizeError::NeedsImportance { given: true, .. }), "{refused}");
    assert!(!dir.path().join("out.gguf").exists());
}

/// The values of a matrix's weights in a file.
fn weights(path: &Path, name: &str) -> Vec<Vec<f32>> {
    let header = gguf::read(path).unwrap();
    let tensor = header.tensor(name).unwrap();
    let bytes = fs::read(path).unwrap();
    let mut floats = vec![0.0; tensor.shape.elements() as usize];
    let ty = WeightType::from_id(tensor.ty.id).unwrap();
    let bytes = &bytes[tensor.extent.offset as usize..tensor.extent.end() as usize];
    assert!(dequantize_into(ty, bytes, &mut floats));
    let [columns, rows, ..] = tensor.shape.0;
    floats.chunks((columns * rows) as usize).map(<[f32]>::to_vec).collect()
}

/// Sums of zero with a count above zero made every weight zero.
#[test]
fn importance_of_zero_everywhere_is_no_data() {
    let dir = TempDir::new().unwrap();
    let input = model(&dir, Arch::Qwen3Moe);
    let (attention, experts) = ("blk.0.attn_output.weight", "blk.1.ffn_down_exps.weight");
    let values = importance(&input);
    let columns = gguf::read(&input).unwrap().tensor(experts).unwrap().shape.0[0] as usize;
    let expert = |values: &mut Vec<f32>, value| values[2 * columns..3 * columns].fill(value);
    let with = |value: f32| {
        let mut changed = values.clone();
        for (name, values) in &mut changed {
            match name.as_str() {
                name if name == attention => values.fill(value),
                name if name == experts => expert(values, value),
                _ => {}
            }
        }
        changed
    };
    let (zeros, ones) = (dir.path().join("zeros.dat"), dir.path().join("ones.dat"));
    fs::write(&zeros, legacy(&with(0.0))).unwrap();
    fs::write(&ones, legacy(&with(1.0))).unwrap();
    let [out, expected] = ["out.gguf", "expected.gguf"].map(|name| dir.path().join(name));
    for name in ["Q4_K_M", "Q4_0", "IQ4_NL"] {
        let mut options = QuantizeOptions::new(&input, file_type(name));
        options.imatrix = Some(zeros.clone());
        let plan = QuantizePlan::new(&options).unwrap();
        let warned: Vec<_> = plan.warnings().iter().filter(|w| w.contains("only zeros")).collect();
        assert_eq!(warned.len(), 1, "one line for all: {:?}", plan.warnings());
        assert!(warned[0].contains(attention), "{warned:?}");
        assert!(warned[0].contains(&format!("{experts} (expert 2 of ")), "{warned:?}");
        write(&options, &out).unwrap();
        options.imatrix = Some(ones.clone());
        write(&options, &expected).unwrap();
        for tensor in [attention, experts] {
            let found = weights(&out, tensor);
            assert!(found == weights(&expected, tensor), "{name}: {tensor}");
            assert!(found.iter().all(|slice| slice.iter().any(|&w| w != 0.0)), "{name}: {tensor}");
        }
    }
}

/// Whatever makes all weights of a matrix zero, or not finite: nothing is written.
#[test]
fn a_matrix_that_is_lost_is_an_error_by_name() {
    let dir = TempDir::new().unwrap();
    let input = model(&dir, Arch::Qwen3Moe);
    let name = "blk.1.ffn_down_exps.weight";
    let columns = gguf::read(&input).unwrap().tensor(name).unwrap().shape.0[0] as usize;
    let (file, out) = (dir.path().join("imatrix.dat"), dir.path().join("out.gguf"));
    // So small that products with weights are zero, and so large that they may be infinite.
    for (value, reason) in [(f32::from_bits(1), "every weight becomes zero as"), (1e37, "as")] {
        let mut values = importance(&input);
        let (_, own) = values.iter_mut().find(|(tensor, _)| tensor == name).unwrap();
        own[columns..2 * columns].fill(value);
        fs::write(&file, legacy(&values)).unwrap();
        let mut options = QuantizeOptions::new(&input, file_type("Q4_K_S"));
        options.imatrix = Some(file.clone());
        fs::write(&out, "GGUF, as it was").unwrap();
        match write(&options, &out) {
            Err(error) => {
                let text = error.to_string();
                assert!(
                    matches!(error, QuantizeError::Zeroed { .. } | QuantizeError::NotFinite { .. }),
                    "{text}"
                );
                assert!(text.contains(name) && text.contains("expert 1 of "), "{text}");
                assert!(text.contains(reason) && text.contains("q4_K"), "{text}");
                assert_eq!(fs::read(&out).unwrap(), b"GGUF, as it was");
            }
            // ggml copes with the large one.
            Ok(()) => {
                assert!(value > 1.0, "{value}");
                assert!(weights(&out, name).iter().all(|slice| slice.iter().any(|&w| w != 0.0)));
            }
        }
    }
    // Weights too small for the new type, without importance values.
    let header = gguf::read(&input).unwrap();
    let tensor = header.tensor("blk.0.attn_k.weight").unwrap();
    let mut bytes = fs::read(&input).unwrap();
    // The smallest subnormal number of F16.
    for weight in bytes[tensor.extent.offset as usize..tensor.extent.end() as usize].chunks_exact_mut(2) {
        weight.copy_from_slice(&1u16.to_le_bytes());
    }
    let small = dir.path().join("small.gguf");
    fs::write(&small, bytes).unwrap();
    let refused = write(&QuantizeOptions::new(&small, file_type("Q8_0")), &out).unwrap_err();
    let expected = "`blk.0.attn_k.weight`: every weight becomes zero as q8_0, and they are not zero as f16";
    assert_eq!(refused.to_string(), expected);
}

/// Values that differ by column and expert, some of them zero.
fn importance(model: &Path) -> Vec<(String, Vec<f32>)> {
    let header = gguf::read(model).unwrap();
    let matrices = header.tensors.iter().filter(|t| t.name.starts_with("blk.") && t.shape.dims() > 1);
    let values = |len: u64| (0..len).map(|i| if i % 97 == 0 { 0.0 } else { 0.5 + (i % 31) as f32 }).collect();
    matrices.map(|t| (t.name.clone(), values(t.shape.0[0] * t.shape.0[2]))).collect()
}

fn legacy(entries: &[(String, Vec<f32>)]) -> Vec<u8> {
    let mut out = (entries.len() as i32).to_le_bytes().to_vec();
    for (name, values) in entries {
        out.extend((name.len() as i32).to_le_bytes());
        out.extend(name.as_bytes());
        out.extend(2i32.to_le_bytes());
        out.extend((values.len() as i32).to_le_bytes());
        // Sums over two calls.
        out.extend(values.iter().flat_map(|v| (v * 2.0).to_le_bytes()));
    }
    out
}

#[test]
fn quantised_weights_only_if_that_is_wanted() {
    let dir = TempDir::new().unwrap();
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf");
    let mut options = QuantizeOptions::new(&input, file_type("Q2_K"));
    let refused = write(&options, &dir.path().join("out.gguf")).unwrap_err();
    assert!(matches!(refused, QuantizeError::Requantize { .. }), "{refused}");
    options.allow_requantize = true;
    same(&options, &ByLlama { allow_requantize: true, ..ByLlama::default() }, &dir);
}

#[test]
fn rows_that_are_no_whole_blocks_fall_back_and_say_so() {
    let dir = TempDir::new().unwrap();
    let spec = Spec { layers: 1, expert_ff: 96, ..Spec::new(Arch::Qwen3Moe) }.with_type(WeightType::F16);
    let input = terrace_testkit::write(&spec, dir.path().join("f16.gguf")).unwrap();
    let options = QuantizeOptions::new(&input, file_type("Q4_K_S"));
    let plan = QuantizePlan::new(&options).unwrap();
    let warned =
        plan.warnings().iter().any(|w| w.contains("blk.0.ffn_down_exps.weight") && w.contains("q5_0"));
    assert!(warned, "{:?}", plan.warnings());
    same(&options, &ByLlama::default(), &dir);
}

#[test]
fn one_file_per_tensor_is_the_same_model() {
    let dir = TempDir::new().unwrap();
    let input = model(&dir, Arch::Qwen3Moe);
    let options = QuantizeOptions::new(&input, file_type("Q4_K_M"));
    let whole = dir.path().join("whole.gguf");
    write(&options, &whole).unwrap();
    let plan = QuantizePlan::new(&options).unwrap();
    let folder = dir.path().join("split");
    fs::create_dir(&folder).unwrap();
    let written = plan.write_split(&folder.join("m"), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(written.files, plan.tensors().len() + 1);
    let sizes: u64 = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(sizes, written.size.bytes());

    let (one, many) = (gguf::read(&whole).unwrap(), gguf::read(&written.path).unwrap());
    assert_eq!(many.shards.len(), written.files);
    let bytes = |model: &terrace_model::ModelFile, name: &str| {
        let tensor = model.tensor(name).unwrap();
        let file = fs::read(&model.shards[tensor.extent.file.index()].path).unwrap();
        (tensor.ty.clone(), file[tensor.extent.offset as usize..tensor.extent.end() as usize].to_vec())
    };
    for tensor in &one.tensors {
        assert!(bytes(&one, &tensor.name) == bytes(&many, &tensor.name), "{}", tensor.name);
    }
    // Merged back into one file, the model is the same, byte by byte; so is one that was divided among disks.
    let disk = |name: &str, rate| {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        Disk { folder, rate }
    };
    let disks = [disk("fast", 3e9), disk("slow", 1e9), disk("slower", 5e8)];
    let divided = plan.write_on(&folder.join("d"), &disks, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(divided.files, 3);
    for first in [&written.path, &divided.path] {
        let again = dir.path().join("again.gguf");
        write(&QuantizeOptions::new(first, FileType::COPY), &again).unwrap();
        assert!(fs::read(&again).unwrap() == fs::read(&whole).unwrap(), "{}", first.display());
        fs::remove_file(again).unwrap();
    }
}

#[test]
fn what_is_ended_or_fails_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let input = model(&dir, Arch::Qwen3Moe);
    let plan = QuantizePlan::new(&QuantizeOptions::new(&input, file_type("Q8_0"))).unwrap();
    let files = || fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files(), 1);
    let out = dir.path().join("out.gguf");
    let mut told = 0;
    let mut stop = |_: &terrace_quantize::QuantizeProgress<'_>| {
        told += 1;
        if told % 5 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert!(matches!(plan.write(&out, &mut stop), Err(QuantizeError::Cancelled)));
    assert!(matches!(plan.write_split(&out, &mut stop), Err(QuantizeError::Cancelled)));
    assert_eq!(files(), 1);

    let before = fs::read(&input).unwrap();
    let refused = plan.write(&input, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(QuantizeError::OntoInput(_))));
    assert!(fs::read(&input).unwrap() == before);

    // Weights that are not finite: the error names the tensor and the place.
    let header = gguf::read(&input).unwrap();
    let tensor = header.tensor("blk.1.ffn_up_exps.weight").unwrap();
    let mut damaged = before;
    damaged[tensor.extent.offset as usize + 4096..][..2].copy_from_slice(&0x7c00u16.to_le_bytes());
    let bad = dir.path().join("bad.gguf");
    fs::write(&bad, damaged).unwrap();
    let refused = write(&QuantizeOptions::new(&bad, file_type("Q8_0")), &out).unwrap_err();
    assert!(
        matches!(&refused, QuantizeError::Weights { tensor, .. } if tensor == "blk.1.ffn_up_exps.weight"),
        "{refused}"
    );
    assert_eq!(files(), 2);
}
