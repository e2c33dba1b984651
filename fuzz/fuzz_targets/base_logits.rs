//! Base files of a comparison: header, tokens, rows of log probabilities.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_eval::fuzzing;
use terrace_fuzz::Scratch;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);

fuzz_target!(|data: &[u8]| {
    let path = SCRATCH.write("base", data);
    fuzzing::base_logits(&path);
});
