//! `terrace quantize`: its files run, as do those with one tensor each, and impossible wishes are
//! refused in one line.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace, tiny};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, WeightType};

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn text(model: &Path) -> String {
    let output = run(["run", path(model), "-p", "In the beginning", "-n", "24", "--temp", "0"]);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).to_owned()
}

#[test]
fn a_model_on_two_disks_has_a_part_of_every_layer_on_each() {
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let folders = ["fast", "slow", "model"].map(|name| dir.path().join(name));
    folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let [fast, slow, here] = &folders;
    let disks = format!("{}:{}", path(fast), path(slow));
    let out = here.join("m.gguf");
    let divide = ["quantize", path(&model), path(&out), "--shards-on", &disks, "--json"];
    let report = json(&run(divide));
    let first = Path::new(report["out"].as_str().unwrap());
    assert_eq!(first, here.join("m-00001-of-00002.gguf"));
    assert_eq!((report["files"].as_u64(), &report["bytes"]), (Some(2), &report["old_bytes"]));
    // Both disks are unknown, so they count as equal: each has about half of each layer's experts.
    let size = |folder: &Path, number: u8| {
        fs::metadata(folder.join(format!("m-0000{number}-of-00002.gguf"))).unwrap().len() as f64
    };
    let share = size(fast, 1) / (size(fast, 1) + size(slow, 2));
    assert!((0.45..0.55).contains(&share), "{share}");
    let inspected = json(&run(["inspect", path(first), "--json", "--tensors"]));
    let tensors = inspected["tensor_list"].as_array().unwrap();
    for layer in 0..6 {
        let experts = format!("blk.{layer}.ffn_");
        let of_layer = tensors.iter().filter(|tensor| {
            let name = tensor["name"].as_str().unwrap();
            name.starts_with(&experts) && name.contains("_exps")
        });
        let on: BTreeSet<String> = of_layer.map(|tensor| tensor["file"].to_string()).collect();
        assert_eq!(on.len(), 2, "layer {layer}");
    }
    let expected = text(&model);
    assert_eq!(text(first), expected);
    let streamed = run([
        "run",
        path(first),
        "-p",
        "In the beginning",
        "-n",
        "24",
        "--temp",
        "0",
        "--stream",
        "experts",
        "--ram-budget",
        "9MiB",
    ]);
    assert_eq!(stdout(&streamed), expected, "{}", stderr(&streamed));
    // Nothing is replaced unasked, links included; asked, everything is.
    assert!(failure(&run(divide), 1).contains("the file exists"));
    let report = json(&run([&divide[..], &["--overwrite"]].concat()));
    assert_eq!(text(Path::new(report["out"].as_str().unwrap())), expected);
    let one = failure(&run(["quantize", path(&model), path(&out), "--shards-on", path(fast)]), 2);
    assert!(one.contains("one folder"), "{one}");
}

#[test]
fn a_model_of_one_file_per_tensor_runs() {
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let out = dir.path().join("split");
    fs::create_dir(&out).unwrap();
    let report =
        json(&run(["quantize", path(&model), path(&out), "--type", "copy", "--split-tensors", "--json"]));
    let first = Path::new(report["out"].as_str().unwrap());
    let name = first.file_name().unwrap().to_str().unwrap();
    let files = report["files"].as_u64().unwrap();
    assert_eq!(name, format!("tiny-moe-Q4_K-COPY-SPECIAL_TENSOR-00001-of-{files:05}.gguf"));
    assert_eq!(report["bytes"], report["old_bytes"]);
    let expected = text(&model);
    assert_eq!(text(first), expected);
    // Streamed, with a lower limit on open files than the model has files: the limit is raised as
    // far as the system allows.
    let limited = |most: u64| {
        let mut command = terrace();
        command.args(["run", path(first), "-p", "In the beginning", "-n", "24", "--temp", "0"]);
        command.args(["--stream", "experts", "--ram-budget", "9MiB"]);
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(move || {
                let limit = rustix::process::Rlimit { current: Some(32), maximum: Some(most) };
                Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?)
            });
        }
        command.output().unwrap()
    };
    let output = limited(100 + 4 * files);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), expected);
    let output = limited(32);
    let error = failure(&output, 1);
    assert!(error.contains(".gguf") && error.contains("Too many open files"), "{error}");
    assert!(stderr(&output).contains("raise `ulimit -n`"), "{}", stderr(&output));
}

#[test]
fn a_recipe_decides_behind_rules() {
    let dir = TempDir::new().unwrap();
    let spec = Spec::new(Arch::Qwen3Moe).with_type(WeightType::F16);
    let model = terrace_testkit::write(&spec, dir.path().join("f16.gguf")).unwrap();
    let recipe = dir.path().join("mix.txt");
    fs::write(&recipe, "# of a sweep\n\nffn_down_exps=q6_K\n  blk\\.0\\.ffn_.*_exps=q8_0\n").unwrap();
    let out = dir.path().join("mix.gguf");
    let args = [
        "--type",
        "q4_k_m",
        "--pure",
        "--recipe",
        path(&recipe),
        "--tensor",
        "1.ffn_down_exps=q3_k",
        "--json",
    ];
    let report = json(&run(["quantize", path(&model), path(&out)].into_iter().chain(args)));
    let tensors = report["tensors"].as_array().unwrap();
    let ty =
        |name: &str| tensors.iter().find(|t| t["name"] == name).unwrap()["to"].as_str().unwrap().to_owned();
    assert_eq!(ty("blk.0.ffn_down_exps.weight"), "q6_K");
    assert_eq!(ty("blk.1.ffn_down_exps.weight"), "q3_K");
    assert_eq!(ty("blk.0.ffn_up_exps.weight"), "q8_0");
    assert_eq!(ty("blk.1.ffn_up_exps.weight"), "q4_K");
    assert_eq!(ty("blk.1.ffn_norm.weight"), "f32");
    assert_eq!(fs::metadata(&out).unwrap().len(), report["file_bytes"].as_u64().unwrap());
    text(&out);

    let dry = json(&run(["quantize", path(&model), "--dry-run"].into_iter().chain(args)));
    assert_eq!(dry["tensors"], report["tensors"]);
    assert_eq!(dry["file_bytes"], report["file_bytes"]);
    assert_eq!(dry["out"], serde_json::Value::Null);

    fs::write(&recipe, "ffn=q6_K\nffn\n").unwrap();
    let error =
        failure(&run(["quantize", path(&model), path(&out), "--type", "copy", "--recipe", path(&recipe)]), 1);
    assert!(error.contains("mix.txt, line 2") && error.contains("REGEX=TYPE"), "{error}");
}

/// The forms of quant_assign.py of GGUF-Tool-Suite, and of ik_llama.cpp's llama-quantize.
#[test]
fn recipes_of_others_are_read_as_they_are() {
    let dir = TempDir::new().unwrap();
    let spec = Spec::new(Arch::Qwen3Moe).with_type(WeightType::F16);
    let model = terrace_testkit::write(&spec, dir.path().join("f16.gguf")).unwrap();
    let (recipe, out) = (dir.path().join("a.recipe"), dir.path().join("out.gguf"));
    fs::write(
        &recipe,
        "## Quant mix recipe created using Thireus' GGUF Tool Suite\r\n# Model name:\n\n\
         ^output_norm\\.weight$=f32\n^blk\\.([0-9]|1[0-9])\\.ffn_down_exps\\.weight$=Q2_k\n\
         ^blk\\.0\\.attn_q\\.weight$=IQ4_XS\n^blk\\.0\\.attn_k_b\\.weight$=q8_0\n## Summary\n# GPU: q8_0 5%\n",
    )
    .unwrap();
    let types = |args: &[&str]| {
        let output = run(["quantize", path(&model), path(&out), "--json", "--dry-run"].iter().chain(args));
        let report = json(&output);
        let ty = |name: &str| {
            let mut tensors = report["tensors"].as_array().unwrap().iter();
            tensors.find(|t| t["name"] == name).unwrap()["to"].as_str().unwrap().to_owned()
        };
        let names = ["blk.1.ffn_down_exps.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight"];
        (names.map(ty), stderr(&output))
    };
    // What a recipe does not name keeps its type.
    let (recipes, told) = types(&["--recipe", path(&recipe)]);
    assert_eq!(recipes, ["q2_K", "iq4_xs", "f16"]);
    assert!(told.contains("attn_k_b") && told.contains("matches no tensor"), "{told}");
    let rules = r"blk\.[0-9]{1,2}\.ffn_down=q3_K,blk\.0\.attn_q=Q8_0,nothing=q8_0";
    assert_eq!(types(&["--custom-q", rules]).0, ["q3_K", "q8_0", "f16"]);
    let (both, _) = types(&["--custom-q", rules, "--recipe", path(&recipe), "--tensor", "ffn_down=q6_K"]);
    assert_eq!(both, ["q6_K", "q8_0", "f16"]);
    let wrong = run(["quantize", path(&model), path(&out), "--custom-q", "ffn=q8_0,attn"]);
    assert!(failure(&wrong, 2).contains("REGEX=TYPE"), "{}", stderr(&wrong));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() {
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let (out, tiny) = (dir.path().join("out.gguf"), tiny(&dir));
    let nowhere = dir.path().join("nowhere/out.gguf");
    let cases: &[(&[&str], i32, &str)] = &[
        (&[path(&model), path(&out), "--type", "Q2_K"], 1, "already q4_K"),
        (&[path(&model), path(&out), "--type", "Q9_Z"], 2, "Q4_K_M"),
        (&[path(&model), path(&out), "--type", "COPY", "--tensor", "ffn=q9"], 2, "q4_K"),
        (&[path(&model), path(&out), "--type", "COPY", "--tensor", "(=q8_0"], 2, "expression"),
        (&[path(&model), path(&out), "--type", "COPY", "--tensor", "nothing=q8_0"], 1, "no tensor"),
        (&[path(&model), path(&out)], 2, "--type"),
        (&[path(&model), "--type", "COPY"], 2, "OUT"),
        (&[path(&model), path(&out), "--type", "IQ2_XS", "--allow-requantize"], 1, "importance"),
        (&[path(&model), path(&out), "--type", "COPY", "--imatrix", path(&model)], 1, "imatrix.datasets"),
        (&[path(&model), path(&out), "--type", "COPY", "--imatrix", "/nonexistent"], 1, "/nonexistent"),
        (&[path(&tiny), path(&tiny), "--type", "COPY"], 1, "the command reads this file"),
        (&[path(&model), path(&nowhere), "--type", "COPY"], 1, "nowhere"),
        (&[path(&model), path(dir.path()), "--type", "COPY"], 1, "not a regular file"),
        (&["/nonexistent.gguf", path(&out), "--type", "COPY"], 1, "/nonexistent.gguf"),
    ];
    for (args, code, named) in cases {
        let output = run(["quantize"].iter().chain(*args));
        let error = failure(&output, *code);
        assert!(error.contains(named), "{args:?}: {error}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(left, ["tiny.gguf"], "{args:?}");
    }
}

#[test]
fn a_disk_that_fills_up_leaves_nothing() {
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let out = dir.path().join("out.gguf");
    let mut command = terrace();
    command.args(["quantize", path(&model), path(&out), "--type", "copy"]);
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            // Files of at most one MiB, and an error instead of a signal for more.
            let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
            rustix::process::setrlimit(rustix::process::Resource::Fsize, limit)?;
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            Ok(())
        });
    }
    let error = failure(&command.output().unwrap(), 1);
    assert!(error.contains("out.gguf") && error.to_lowercase().contains("file too large"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_ended_or_killed_leaves_nothing() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let (dir, model) = (TempDir::new().unwrap(), bundled());
        let out = dir.path().join("out.gguf");
        let mut command = terrace();
        command.args(["quantize", path(&model), path(&out), "--type", "IQ4_XS", "--allow-requantize"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let files = PathBuf::from(format!("/proc/{}/fd", child.id()));
        let writes = || {
            let links = fs::read_dir(&files).into_iter().flatten().flatten();
            links.filter_map(|link| fs::read_link(link.path()).ok()).any(|to| to.starts_with(dir.path()))
        };
        while !writes() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it began");
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: a signal to a child that was not waited for.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
        let output = child.wait_with_output().unwrap();
        let code = (signal == libc::SIGINT).then_some(130);
        assert_eq!(output.status.code(), code, "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// A file with wrong lengths costs no memory and ends in one line.
#[test]
fn importance_files_that_lie() {
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let (out, file) = (dir.path().join("out.gguf"), dir.path().join("imatrix.dat"));
    let words = |words: &[i32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let name = i32::from_le_bytes(*b"name");
    let nan = f32::NAN.to_bits().cast_signed();
    let cases = [
        (vec![], "ends after 0 bytes"),
        (words(&[0]), "0 is not a valid number of entries"),
        (words(&[i32::MAX]), "is not a valid number of entries"),
        (words(&[1, i32::MAX]), "is not a valid name length"),
        (words(&[1, 4]), "ends after 8 bytes"),
        (words(&[1, 4, name, 1, 2, 0]), "2 is not a valid number of values"),
        (words(&[1, 4, name, 1, -1]), "-1 is not a valid number of values"),
        (words(&[1, 4, name, 1, 1, nan]), "NaN is not a sum"),
        (words(&[2, 4, name, 1, 1, 0, 4, name, 1, 1, 0]), "duplicate entry `name`"),
    ];
    for (bytes, named) in cases {
        fs::write(&file, bytes).unwrap();
        let output = run(["quantize", path(&model), path(&out), "--type", "copy", "--imatrix", path(&file)]);
        let error = failure(&output, 1);
        assert!(error.contains("imatrix.dat") && error.contains(named), "{named}: {error}");
    }
}

#[test]
fn types_are_chosen_to_fit_a_size() {
    let dir = TempDir::new().unwrap();
    let spec = Spec::new(Arch::Qwen3Moe).with_type(WeightType::F16);
    let model = terrace_testkit::write(&spec, dir.path().join("f16.gguf")).unwrap();
    let bytes = |ty: &str| {
        json(&run(["quantize", path(&model), "--dry-run", "--json", "--pure", "--type", ty]))["file_bytes"]
            .as_u64()
            .unwrap()
    };
    let out = dir.path().join("fit.gguf");
    let fit = |size: u64, more: &[&str]| {
        let size = size.to_string();
        run(["quantize", path(&model), path(&out), "--fit", &size, "--overwrite"].iter().chain(more))
    };
    let (small, large) = (bytes("Q4_K"), bytes("Q8_0"));
    let mut errors = Vec::new();
    for size in [small, u64::midpoint(small, large), large] {
        let report = json(&fit(size, &["--json"]));
        let written = fs::metadata(&out).unwrap().len();
        assert!(written <= size && written == report["file_bytes"].as_u64().unwrap(), "{report}");
        assert!(written as f64 > size as f64 * 0.9, "{written} of {size} bytes are used");
        errors.push(report["matrix_error"].as_f64().unwrap());
        assert!(!text(&out).trim().is_empty());
    }
    assert!(errors.is_sorted_by(|a, b| a > b), "more bytes have smaller errors: {errors:?}");
    // Rules stay.
    let report = json(&fit(large, &["--json", "--tensor", "ffn_down_exps=q4_K"]));
    let tensors = report["tensors"].as_array().unwrap();
    let down = tensors.iter().filter(|tensor| tensor["name"].as_str().unwrap().contains("ffn_down_exps"));
    assert!(down.clone().count() > 0 && down.into_iter().all(|tensor| tensor["to"] == "q4_K"), "{report}");
    let error = failure(&fit(small / 8, &[]), 1);
    assert!(error.contains("the smallest types make a file of"), "{error}");
    // As llama-quantize has it.
    let positional = json(&run(["quantize", path(&model), path(&out), "Q8_0", "--overwrite", "--json"]));
    assert_eq!((&positional["type"], &positional["file_bytes"]), (&"Q8_0".into(), &bytes("Q8_0").into()));
}
