//! The socket of the process that applies chat templates: frames of any content and length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_engine::fuzzing;

fuzz_target!(|data: &[u8]| {
    fuzzing::chat_worker(data);
    // Lines as the contents of whole frames, whose lengths a fuzzer would have to find.
    let frames = data.split(|&byte| byte == b'\n').flat_map(|line| {
        let length = (line.len() as u64).to_le_bytes();
        length.into_iter().chain(line.iter().copied())
    });
    fuzzing::chat_worker(&frames.collect::<Vec<u8>>());
});
