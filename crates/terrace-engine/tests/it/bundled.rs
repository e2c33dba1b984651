//! The bundled model.

use std::path::{Path, PathBuf};
use terrace_engine::options::{ComputeOptions, ContextOptions, MemoryOptions};
use terrace_engine::{Engine, Options};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};

pub fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// The bundled model, one thread, prompts in batches of 64 tokens with two graphs each.
pub fn options(streamed: bool) -> Options {
    Options {
        model: models().join("tiny-moe-Q4_K.gguf"),
        memory: MemoryOptions {
            stream: if streamed { Manage::Experts } else { Manage::None },
            ram_budget: if streamed { Budget::Bytes(ByteSize::mib(4)) } else { Budget::Auto },
            available_memory: Some(ByteSize::gib(8)),
            ..MemoryOptions::default()
        },
        context: ContextOptions { ctx: Some(512), batch: 64, ubatch: Some(32), ..ContextOptions::default() },
        compute: ComputeOptions { threads: Some(1), ..ComputeOptions::default() },
        ..Options::default()
    }
}

/// `len` tokens of the sample text from byte `from` on.
pub fn text(engine: &Engine, from: usize, len: usize) -> Vec<i32> {
    let text = std::fs::read_to_string(models().join("sample.kjv.txt")).unwrap();
    let start = text[from..].find(' ').unwrap() + from;
    let mut tokens = engine.tokenize(&text[start..start + 8 * len], true, false).unwrap();
    tokens.truncate(len);
    tokens
}
