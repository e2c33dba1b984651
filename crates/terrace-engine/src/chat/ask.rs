//! Requests to the process that applies chat templates, and its responses.

use super::error::ChatTemplateError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Memory of a worker beyond what the program takes when it starts, in MiB: over ten times what the
/// largest conversation needs that a server accepts.
pub(super) const MEMORY_MIB: u64 = 512;

/// A request to a worker. The response is a text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask<'a> {
    /// To parse the template: what it can write, as JSON.
    Parse(Source),
    /// To render a conversation: JSON for JSON, see [`terrace_ggml::common::Templates::apply`].
    Apply(Cow<'a, str>),
    /// To read an answer from now on, see [`terrace_ggml::common::AnswerReader::new`]. The answer is
    /// empty.
    Read(Cow<'a, str>),
    /// To read more of it: what that adds, as JSON.
    Push {
        text: Cow<'a, str>,
        /// True if there is more after it.
        more: bool,
    },
    /// To make a grammar of a JSON schema.
    Schema(Cow<'a, str>),
    /// To check a grammar. The answer is empty.
    Grammar(Cow<'a, str>),
}

/// A template's text, and the texts of the tokens that it writes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Source {
    pub text: String,
    pub bos: String,
    pub eos: String,
}

/// A worker's answer: a text, which follows as it is, or an error.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Length of the text, in bytes.
    Text(u64),
    Error(ChatTemplateError),
}
