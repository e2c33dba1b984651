//! Chat templates: applies the Jinja text in a GGUF as Hugging Face's `apply_chat_template` does.
//!
//! Templates come from model files and are untrusted. They are parsed and applied by a process of
//! their own ([`worker`]), which has little memory and time and ends without harm; every failure is
//! an error.

#[cfg(fuzzing)]
pub mod fuzzing;
mod jinja;
mod process;
mod template;
mod worker;

pub use template::ChatTemplate;
pub use worker::enter as enter_chat_worker;

use serde::{Deserialize, Serialize};

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`; templates may accept others.
    pub role: String,
    /// The text of the turn.
    pub content: String,
}

impl Message {
    /// Makes a turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// Texts of the tokens that chat templates refer to.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    /// Beginning of a document.
    pub bos: Option<String>,
    /// End of a document.
    pub eos: Option<String>,
}

impl SpecialTokens {
    /// Whether a text already begins with the beginning-of-document token, which most templates
    /// write themselves.
    pub fn begin(&self, text: &str) -> bool {
        self.bos.as_ref().is_some_and(|bos| !bos.is_empty() && text.starts_with(bos))
    }
}

/// Why a chat template could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ChatTemplateError {
    /// The template's text is not valid Jinja.
    #[error("cannot parse the model's chat template: {detail} (line {line})")]
    Syntax {
        /// Line in the template, from 1.
        line: usize,
        /// The parser's message.
        detail: String,
    },
    /// The template itself refused the conversation (`raise_exception`).
    #[error("the model's chat template rejects this conversation: {0}")]
    Refused(String),
    /// The template failed while it was applied.
    #[error("cannot apply the model's chat template: {detail} (line {line})")]
    Render {
        /// Line in the template, from 1.
        line: usize,
        /// What went wrong.
        detail: String,
    },
    /// It took too much of something.
    #[error("cannot apply the model's chat template: {0}")]
    Limit(Limit),
    /// There is no process that could apply it.
    #[error("cannot start the process that applies chat templates: {0}")]
    Process(String),
}

/// What a template may take too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Limit {
    /// Seconds of computing.
    #[error("it takes more than {0} s")]
    Time(u64),
    /// Memory: its values, or its calls within calls.
    #[error("it takes more than {0} MiB of memory, or recurses too deeply")]
    Memory(u64),
    /// Its text.
    #[error("it writes more than {0} MiB")]
    Output(usize),
}
