//! A LoRA adapter over streamed tensors.

use crate::host::{bundled, load, places, plug_in, set, trace, trace_in};
use std::path::Path;
use terrace_ggml::gguf::read;
use terrace_ggml::gguf::write::Header;
use terrace_ggml::quantize::WeightType;
use terrace_ggml::testing::adapter;
use terrace_model::Shape;

/// Writes an adapter of rank 2 for these tensors of a model.
fn write(path: &Path, model: &Path, tensors: &[&str]) {
    let model = read(model).unwrap();
    let mut header = Header::new();
    header.set("general.architecture", model.architecture()).unwrap();
    header.set("general.type", "adapter").unwrap();
    header.set("adapter.type", "lora").unwrap();
    header.set("adapter.lora.alpha", 2.0f32).unwrap();
    let mut values: Vec<f32> = Vec::new();
    for name in tensors {
        let tensor = model.tensors.iter().find(|tensor| tensor.name == *name).unwrap();
        let [from, to, experts, _] = tensor.shape.0;
        for (suffix, shape) in [("lora_a", [from, 2, experts, 1]), ("lora_b", [2, to, experts, 1])] {
            header.add_tensor(&format!("{name}.{suffix}"), WeightType::F32, Shape(shape)).unwrap();
            values.extend((0..shape.iter().product()).map(|i| 0.05 * ((i % 7) as f32 - 3.0)));
            assert!(values.len().is_multiple_of(8), "the next one begins at a multiple of 32 bytes");
        }
    }
    let mut bytes = header.to_bytes();
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

/// llama.cpp puts an adapter's tensors into memory of the type that the weights have.
#[test]
fn an_adapter_of_streamed_experts_gives_the_same_logits() {
    set("TERRACE_RAM_BUDGET", "3MiB");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("adapter.gguf");
    let tensors = ["blk.0.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight", "blk.1.attn_q.weight"];
    write(&path, &bundled(), &tensors);
    let adapted = |model: &_| trace_in(model, |context| adapter::apply(model, context, &path));
    let stock = load(&bundled(), false);
    let (expected, without) = (adapted(&stock), trace(&stock));
    assert!(expected != without, "the adapter changes nothing");
    drop(stock);
    plug_in();
    for read in [false, true] {
        let model = load(&bundled(), read);
        assert!(places(&model).contains("TERRACE"), "{:?}", places(&model));
        assert!(adapted(&model) == expected, "with mapping {}", !read);
        assert!(trace(&model) == without, "without it, with mapping {}", !read);
    }
}
