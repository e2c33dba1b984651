//! A LoRA adapter over streamed tensors.

use crate::host::{bundled, load, places, plug_in, set, trace, trace_in};
use terrace_ggml::testing::adapter;
use terrace_testkit::{AdapterSpec, write_adapter};

/// llama.cpp puts an adapter's tensors into memory of the type that the weights have.
#[test]
fn an_adapter_of_streamed_experts_gives_the_same_logits() {
    set("TERRACE_RAM_BUDGET", "3MiB");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("adapter.gguf");
    let weights = &["blk.0.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight", "blk.1.attn_q.weight"];
    write_adapter(&AdapterSpec { weights, ..AdapterSpec::default() }, &bundled(), &path).unwrap();
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
