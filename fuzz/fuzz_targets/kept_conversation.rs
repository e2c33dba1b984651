//! Files of kept conversations: head, tokens, what the context held.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_engine::fuzzing;
use terrace_fuzz::Scratch;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);

fuzz_target!(|data: &[u8]| {
    fuzzing::kept_conversation(&SCRATCH.dir().join("kept"), data);
});
