//! Chat templates, parsed and rendered in this process. Bytes up to the first NUL are the template;
//! the rest are turns, one a line, whose role is the text before the first colon.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_engine::{Message, fuzzing};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (source, turns) = text.split_once('\0').unwrap_or((text, "user: hello\nassistant: hi\nuser: bye"));
    let turn = |line: &str| {
        let (role, content) = line.split_once(':').unwrap_or(("user", line));
        Message::new(role, content)
    };
    let turns: Vec<Message> = turns.lines().take(16).map(turn).collect();
    fuzzing::chat_template(source, &turns);
});
