//! llama.cpp's `common`: chat templates with their formats of tools and thoughts, and grammars. What
//! goes in and comes out is JSON, as `common` itself has it; `chat.cpp` says how.
//!
//! Templates, schemas and grammars are untrusted and not bounded here, neither in time nor in
//! memory: callers use a process that is.

mod chat;
mod grammar;
pub(crate) mod text;

pub use chat::{AnswerReader, Templates, template_names};
pub use grammar::{check_grammar, schema_grammar};

use crate::cxx::{CxxError, guard_assertions};
use std::sync::Once;

unsafe extern "C-unwind" {
    /// `chat.cpp`.
    fn terrace_silence_common();
}

/// Calls into `common`, which then writes no logs of its own.
fn call<R>(f: impl FnOnce() -> R) -> Result<R, CxxError> {
    static SILENCE: Once = Once::new();
    crate::llama::fatal::report_in_one_line();
    // SAFETY: sets a number, before anything else of `common` is called.
    SILENCE.call_once(|| drop(guard_assertions(|| unsafe { terrace_silence_common() })));
    guard_assertions(f)
}

/// A text that C++ has left, which is UTF-8 but for what a model wrote.
fn owned(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
