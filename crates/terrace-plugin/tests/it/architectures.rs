//! Models of several architectures in the smallest host, streamed through little memory.

use crate::host::{load, places, plug_in, set, trace};
use terrace_testkit::{Arch, Spec, each_architecture, write};

fn check(arch: Arch) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
    let file = terrace_ggml::gguf::read(&path).unwrap();
    let experts = |name: &str| name.contains("_exps");
    let streams = |name: &str| if arch.is_moe() { experts(name) } else { name.contains("ffn_") };
    let streamed: u64 = file.tensors.iter().filter(|t| streams(&t.name)).map(|t| t.extent.len).sum();
    let budget = file.size().bytes() - streamed / 2;
    set("TERRACE_STREAM", if arch.is_moe() { "experts" } else { "ffn" });
    set("TERRACE_RAM_BUDGET", &budget.to_string());
    let expected = trace(&load(&path, false));
    plug_in();
    let model = load(&path, false);
    assert!(places(&model).contains("TERRACE"), "{:?}", places(&model));
    assert!(trace(&model) == expected, "{arch}: other logits");
}

each_architecture!(check);
