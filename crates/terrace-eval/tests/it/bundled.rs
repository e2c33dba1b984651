//! The bundled model and text, for tests of measurements.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{ComputeOptions, MemoryOptions};
use terrace_engine::{Engine, Options};
use terrace_model::ByteSize;

/// The directory of the bundled files.
pub fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// Loads the bundled model with one thread and the test's options.
pub fn load(options: Options) -> Engine {
    terrace_testkit::needs_own_process();
    let options = Options {
        model: models().join("tiny-moe-Q4_K.gguf"),
        memory: MemoryOptions { available_memory: Some(ByteSize::gib(8)), ..options.memory },
        compute: ComputeOptions { threads: Some(1), ..options.compute },
        ..options
    };
    Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Tokens of the text's first bytes.
pub fn tokens(engine: &Engine, bytes: usize) -> Vec<i32> {
    let text = std::fs::read_to_string(models().join("sample.kjv.txt")).unwrap();
    engine.tokenize(&text[..bytes], true, false).unwrap()
}
