//! `terrace inspect --check`, and adapters whose weights are not finite.

use crate::common::{bundled, error_line, failure, json, run, stderr, stdout};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use terrace_ggml::gguf;
use terrace_model::TensorInfo;
use terrace_testkit::{AdapterSpec, Arch, Spec, WeightType, write_adapter};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Changes bytes of a tensor.
fn damage(path: &Path, name: &str, change: impl Fn(&TensorInfo, &mut [u8])) {
    let header = gguf::read(path).unwrap();
    let tensor = header.tensor(name).unwrap();
    let mut bytes = fs::read(path).unwrap();
    change(tensor, &mut bytes[tensor.extent.offset as usize..tensor.extent.end() as usize]);
    fs::write(path, bytes).unwrap();
}

#[test]
fn damage_in_weights_is_found_and_named() {
    let dir = TempDir::new().unwrap();
    let good = run(["inspect", text(&bundled()), "--check"]);
    assert!(good.status.success() && stdout(&good).contains("no damage found"), "{}", stdout(&good));

    let spec = Spec { layers: 2, expert_ff: 256, ..Spec::new(Arch::Qwen3Moe) }.with_type(WeightType::Q4_K);
    let bad = terrace_testkit::write(&spec, dir.path().join("bad.gguf")).unwrap();
    assert!(run(["inspect", text(&bad), "--check"]).status.success());
    let (experts, scale, norm) =
        ("blk.0.ffn_down_exps.weight", "blk.1.attn_q.weight", "blk.1.attn_norm.weight");
    damage(&bad, experts, |tensor, bytes| {
        let slice = bytes.len() / tensor.shape.0[2] as usize;
        bytes[5 * slice..7 * slice].fill(0);
    });
    // NaN as the scale of the second block.
    damage(&bad, scale, |_, bytes| bytes[144..146].copy_from_slice(&0x7e00u16.to_le_bytes()));
    damage(&bad, norm, |_, bytes| bytes[8..12].copy_from_slice(&f32::INFINITY.to_le_bytes()));
    let found = run(["inspect", text(&bad), "--check"]);
    assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
    let table = stdout(&found);
    for part in [
        "3 findings",
        "tensor `blk.0.ffn_down_exps.weight` (q4_K, experts 5-6 of 8): every weight is zero",
        "tensor `blk.1.attn_q.weight` (q4_K): 256 weights are NaN or infinite, near offset ",
        "tensor `blk.1.attn_norm.weight` (f32): 1 weight is NaN or infinite, near offset ",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let found = run(["inspect", text(&bad), "--check", "--json"]);
    assert_eq!(found.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let damage = report["check"]["damage"].as_array().unwrap();
    let faults: Vec<_> = damage.iter().map(|one| one["fault"].as_str().unwrap()).collect();
    assert_eq!(faults.iter().filter(|&&fault| fault == "zero").count(), 1, "{report}");
    assert_eq!(faults.len(), 3, "{report}");
    let zero = damage.iter().find(|one| one["fault"] == "zero").unwrap();
    assert_eq!((&zero["slices"], &zero["of"]), (&serde_json::json!([5, 6]), &serde_json::json!(8)));
    // Without the option, only the header is read.
    assert!(json(&run(["inspect", text(&bad), "--json"])).get("check").is_none());
}

#[test]
fn an_adapter_that_is_not_finite_is_refused() {
    let dir = TempDir::new().unwrap();
    let model = bundled();
    let weights = ["blk.0.ffn_up_exps.weight", "blk.1.attn_q.weight"];
    let spec = AdapterSpec { weights: &weights, ..AdapterSpec::default() };
    let name = "blk.1.attn_q.weight.lora_b";
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let adapter = write_adapter(&spec, &model, dir.path().join("adapter.gguf")).unwrap();
        damage(&adapter, name, |_, bytes| bytes[12..16].copy_from_slice(&value.to_le_bytes()));
        for command in [&["run", "-p", "x", "-n", "1"][..], &["serve", "--port", "0"]] {
            let args = command.iter().copied().chain([text(&model), "--lora", text(&adapter)]);
            let output = run(args);
            // A server may have announced its address.
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            let error = error_line(&stderr(&output));
            assert!(error.contains("adapter.gguf") && error.contains(name), "{error}");
            assert!(error.contains("1 weight is NaN or infinite"), "{error}");
        }
        let found = run(["inspect", text(&adapter), "--check"]);
        assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
        assert!(stdout(&found).contains(name), "{}", stdout(&found));
    }
    for alpha in [f32::NAN, f32::INFINITY] {
        let adapter =
            write_adapter(&AdapterSpec { alpha, ..spec }, &model, dir.path().join("adapter.gguf")).unwrap();
        let error = failure(&run(["run", text(&model), "-p", "x", "--lora", text(&adapter)]), 1);
        assert!(error.contains("adapter.lora.alpha"), "{error}");
    }
}
