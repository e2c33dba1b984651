//! Chat templates without the process that bounds their memory and time.

use super::ask::{Ask, Source};
use super::desk::Desk;
use super::process::read_answer;
use super::worker::work;
use super::{ChatTemplateError, Conversation, Message};
use std::io::{self, Read, Write};

/// Parses and renders a template.
///
/// # Panics
/// An error is not one line.
pub fn chat_template(source: &str, messages: &[Message]) {
    let mut desk = Desk::default();
    let source = Source { text: source.into(), bos: "<s>".into(), eos: "</s>".into() };
    let parsed = desk.answer(&Ask::Parse(source));
    let rendered = parsed.and_then(|_| {
        let conversation = Conversation::of(messages);
        let ask = |add_generation_prompt| {
            let conversation = Conversation { add_generation_prompt, ..conversation.clone() };
            Ask::Apply(serde_json::to_string(&conversation).expect("texts").into())
        };
        let _ = desk.answer(&ask(false));
        desk.answer(&ask(true))
    });
    if let Err(error) = rendered {
        one_line(&error);
    }
}

/// Answers these bytes as a worker does, and reads them as a worker's answer.
///
/// # Panics
/// The parent process could not read the worker's answers.
pub fn chat_worker(frames: &[u8]) {
    let mut socket = Socket { input: frames, output: Vec::new() };
    let _ = work(&mut socket, || Ok(()));
    let mut answers = &socket.output[..];
    while !answers.is_empty() {
        match read_answer(&mut answers).expect("a worker's answer") {
            Ok(_) => {}
            Err(error) => one_line(&error),
        }
    }
    let _ = read_answer(&mut &frames[..]);
}

fn one_line(error: &ChatTemplateError) {
    assert!(!error.to_string().contains('\n'), "{error}");
}

/// Both directions of a socket.
struct Socket<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl Read for Socket<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.input.read(to)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
