//! Importance matrices of which the sums say nothing.

use crate::common::{failure, json, run, stderr};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use terrace_ggml::gguf;
use terrace_ggml::gguf::write::Header;
use terrace_model::Shape;
use terrace_testkit::{Arch, Spec, WeightType};

const EXPERTS: &str = "blk.0.ffn_down_exps.weight";
const ATTENTION: &str = "blk.1.attn_q.weight";

/// An importance matrix of all matrices of a model, with a count of 10 and these sums in a tensor:
/// of all its experts, or of one.
fn importance(model: &Path, out: &Path, tensor: &str, expert: Option<u64>, sum: f32) {
    let file = gguf::read(model).unwrap();
    let mut header = Header::new();
    header.set("imatrix.datasets", vec!["text".to_owned()]).unwrap();
    header.set("imatrix.chunk_count", 1u32).unwrap();
    header.set("imatrix.chunk_size", 512u32).unwrap();
    let mut data = Vec::new();
    for info in file.tensors.iter().filter(|t| t.name.starts_with("blk.") && t.shape.dims() > 1) {
        let [columns, _, experts, _] = info.shape.0;
        let name = &info.name;
        header
            .add_tensor(&format!("{name}.in_sum2"), WeightType::F32, Shape([columns, experts, 1, 1]))
            .unwrap();
        header.add_tensor(&format!("{name}.counts"), WeightType::F32, Shape([1, experts, 1, 1])).unwrap();
        let chosen = |no: u64| *name == tensor && expert.is_none_or(|expert| expert == no);
        let sums = (0..experts).flat_map(|no| {
            let value = if chosen(no) { sum } else { 5.0 };
            std::iter::repeat_n(value, columns as usize)
        });
        data.push(sums.collect::<Vec<f32>>());
        data.push(vec![10.0; experts as usize]);
    }
    let mut bytes = header.to_bytes();
    for values in data {
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(32), 0);
    }
    fs::write(out, bytes).unwrap();
}

#[test]
fn sums_of_zero_are_no_data_and_other_impossible_sums_are_refused() {
    let dir = TempDir::new().unwrap();
    let spec = Spec { layers: 2, expert_ff: 256, ..Spec::new(Arch::Qwen3Moe) }.with_type(WeightType::F16);
    let model = terrace_testkit::write(&spec, dir.path().join("f16.gguf")).unwrap();
    let (file, out) = (dir.path().join("imatrix.gguf"), dir.path().join("out.gguf"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let quantize = || {
        run(["quantize", &text(&model), &text(&out), "--type", "Q4_K_M", "--imatrix", &text(&file), "--json"])
    };
    for (tensor, expert, named) in
        [(ATTENTION, None, ATTENTION.to_owned()), (EXPERTS, Some(3), format!("{EXPERTS} (expert 3 of 8)"))]
    {
        importance(&model, &file, tensor, expert, 0.0);
        let output = quantize();
        let report = json(&output);
        assert!(stderr(&output).contains(&named), "{}", stderr(&output));
        assert_eq!(stderr(&output).matches("warning: ").count(), 1, "{}", stderr(&output));
        assert!(report["warnings"].to_string().contains(&named), "{report}");
        let checked = json(&run(["inspect", &text(&out), "--check", "--json"]));
        assert_eq!(checked["check"]["damage"], serde_json::json!([]));
        fs::remove_file(&out).unwrap();
    }
    for sum in [f32::NAN, -1.0, f32::INFINITY] {
        importance(&model, &file, ATTENTION, None, sum);
        let error = failure(&quantize(), 1);
        assert!(error.contains(ATTENTION) && error.contains("is not a sum of squares"), "{error}");
        assert!(!out.exists());
    }
    // Products that are zero, though the sums are not: the result is looked at.
    importance(&model, &file, EXPERTS, Some(3), f32::from_bits(10));
    let output = quantize();
    let error = failure(&output, 1);
    assert!(error.contains(EXPERTS) && error.contains("expert 3 of 8") && error.contains("zero"), "{error}");
    assert!(stderr(&output).contains("hint: check the importance matrix"), "{}", stderr(&output));
    assert!(!out.exists());
}
