//! Split models: several headers that have to agree. The bytes are cut before each magic number.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_fuzz::{Scratch, file_model};
use terrace_ggml::gguf;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);

/// Most shards; further bytes belong to the last.
const MOST: usize = 3;
const MAGIC: &[u8] = b"GGUF";

fuzz_target!(|data: &[u8]| {
    let mut cuts: Vec<usize> =
        data.windows(MAGIC.len()).enumerate().filter(|(_, part)| *part == MAGIC).map(|(at, _)| at).collect();
    cuts.truncate(MOST);
    let count = cuts.len();
    if count == 0 {
        return;
    }
    cuts.push(data.len());
    let name = |number: usize| format!("m-{number:05}-of-{count:05}.gguf");
    for (index, cut) in cuts.windows(2).enumerate() {
        SCRATCH.write(&name(index + 1), &data[cut[0]..cut[1]]);
    }
    for number in 1..=count {
        match gguf::read(&SCRATCH.dir().join(name(number))) {
            Ok(model) => file_model(&model),
            Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
        }
    }
});
