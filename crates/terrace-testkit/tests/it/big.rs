//! Files assembled from pools of blocks.

use crate::common::run;
use std::fs;
use terrace_testkit::big::{self, Data, Preset};
use terrace_testkit::{Routing, Spec};

/// Returns a preset shrunk for a test, with all of its ways of filling tensors.
fn small(preset: Preset) -> Spec {
    let spec = preset.spec();
    Spec {
        layers: 2,
        leading_dense: spec.leading_dense.min(1),
        embd: 512,
        heads: spec.heads / 8,
        kv_heads: (spec.kv_heads / 8).max(1),
        ff: 1024,
        expert_ff: 512,
        vocab: 2000,
        ..spec
    }
}

#[test]
fn every_preset_runs_and_repeats() {
    let dir = tempfile::tempdir().unwrap();
    for &preset in Preset::ALL {
        let spec = small(preset);
        let path = big::write(&spec, dir.path().join("model.gguf"), Data::Pooled).unwrap();
        let first = run(&path, 8);
        assert!(first.logits.iter().flatten().all(|x| x.is_finite()), "{}", preset.name());
        assert!(first == run(&path, 8), "{}", preset.name());
        let shards = big::write_split(&spec, dir.path().join("split"), 4, Data::Pooled).unwrap();
        assert!(first == run(&shards[0], 8), "{}: split differs from whole", preset.name());
    }
}

#[test]
fn experts_differ() {
    let dir = tempfile::tempdir().unwrap();
    for routing in [Routing::Uniform, Routing::Skewed] {
        let spec = Spec { routing, ..small(Preset::Qwen3_30bA3b) };
        let path = big::write(&spec, dir.path().join("model.gguf"), Data::Pooled).unwrap();
        let bytes = fs::read(&path).unwrap();
        let model = terrace_ggml::gguf::read(&path).unwrap();
        for name in ["blk.0.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight"] {
            let extent = model.tensors.iter().find(|t| t.name == name).unwrap().extent;
            let (start, end) = (extent.offset as usize, extent.end() as usize);
            let each = (end - start) / spec.experts as usize;
            let mut experts: Vec<&[u8]> = bytes[start..end].chunks(each).collect();
            experts.sort_unstable();
            experts.dedup();
            assert_eq!(experts.len(), spec.experts as usize, "{name}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_sparse_file_has_the_header_and_the_length() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let spec = small(Preset::Mixtral8x7b);
    let full = big::write(&spec, dir.path().join("full.gguf"), Data::Pooled).unwrap();
    let sparse = big::write(&spec, dir.path().join("sparse.gguf"), Data::Sparse).unwrap();
    assert_eq!(fs::metadata(&full).unwrap().len(), fs::metadata(&sparse).unwrap().len());
    let headers = [&full, &sparse].map(|path| terrace_ggml::gguf::read(path).unwrap());
    assert_eq!(headers[0].tensors, headers[1].tensors);
    let whole = Preset::Llama70b.spec();
    let path = big::write(&whole, dir.path().join("whole.gguf"), Data::Sparse).unwrap();
    let file = fs::metadata(&path).unwrap();
    assert!(file.len() > big::tensor_bytes(&whole).bytes() && file.len() > 35 << 30, "{} bytes", file.len());
    assert!(file.blocks() * 512 < 64 << 20, "{} blocks", file.blocks());
}
