//! llama.cpp's `common`: chat templates with their formats of tools and thoughts, and grammars. What
//! goes in and comes out is JSON, as `common` itself has it; `chat.cpp` says how.
//!
//! Templates and schemas are untrusted and not bounded here, neither in time nor in memory: callers use
//! a process that is. Grammars are checked there, and used within bounds of steps, memory and stack.

mod chat;
mod grammar;
pub(crate) mod text;

pub use chat::{AnswerReader, Templates, template_names};
pub(crate) use grammar::CHECK;
pub use grammar::{check_grammar, grammar_accepts, schema_grammar};

use crate::cxx::bounds::Bounds;
use crate::cxx::{CxxError, guard_assertions, guard_bounded};
use std::sync::Once;

unsafe extern "C-unwind" {
    /// `chat.cpp`.
    fn terrace_silence_common();
}

/// Calls into `common`, which writes no logs of its own.
fn call<R>(f: impl FnOnce() -> R) -> Result<R, CxxError> {
    silence();
    guard_assertions(f)
}

/// As [`call`], within bounds.
fn bounded<R>(bounds: Bounds, f: impl FnOnce() -> R) -> Result<R, CxxError> {
    silence();
    guard_bounded(bounds, &|| false, f).0
}

fn silence() {
    static SILENCE: Once = Once::new();
    crate::llama::fatal::report_in_one_line();
    // SAFETY: sets a number, before anything else of `common` is called.
    SILENCE.call_once(|| drop(guard_assertions(|| unsafe { terrace_silence_common() })));
}

/// A text that C++ has left, which is UTF-8 but for what a model wrote.
fn owned(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
