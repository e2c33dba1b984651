//! Splits a growing response into content, reasoning and calls of tools.

use super::ask::Ask;
use super::error::ChatTemplateError;
use super::pool::{Leased, Pool};
use super::reasoning::ReasoningFormat;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The form in which a model responds to a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    pub(super) format: i64,
    pub(super) parser: String,
    pub(super) generation_prompt: String,
    pub(super) reasoning_format: ReasoningFormat,
    pub(super) parse_tool_calls: bool,
    pub(super) continued: bool,
    /// Reader of JSON, if the answer is either that or a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) json: Option<JsonForm>,
}

/// The form of an answer that is JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonForm {
    pub(super) format: i64,
    pub(super) parser: String,
    pub(super) generation_prompt: String,
}

/// An addition to a response by a piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    Thought(String),
    /// Content.
    Text(String),
    /// Part of a call of a tool: the number of the call in the answer. A new call has a name.
    Call {
        /// The number of the call in the answer.
        index: usize,
        /// The model's own identification of the call; most models have none.
        id: Option<String>,
        /// The tool's name.
        name: Option<String>,
        /// More of its arguments' JSON.
        arguments: String,
    },
}

/// Reads an answer while it grows, in a process of its own.
#[derive(Debug)]
pub struct AnswerReader {
    process: Leased,
}

impl AnswerReader {
    pub(super) fn new(pool: &Arc<Pool>, form: &Form) -> Result<Self, ChatTemplateError> {
        let mut process = pool.lease()?;
        let how = serde_json::to_string(form).expect("strings and numbers");
        process.ask(&Ask::Read(how.into()))?;
        Ok(Self { process })
    }

    /// Adds text, after which there is `more`, and returns what it adds to the answer.
    ///
    /// # Errors
    /// [`ChatTemplateError::Answer`] if the whole answer has not the form that it should have,
    /// [`ChatTemplateError::Limit`], [`ChatTemplateError::Process`].
    pub fn push(&mut self, text: &str, more: bool) -> Result<Vec<Delta>, ChatTemplateError> {
        let added = self.process.ask(&Ask::Push { text: text.into(), more })?;
        let added: Vec<Added> = serde_json::from_str(&added)
            .map_err(|error| ChatTemplateError::Process(format!("its response is invalid: {error}")))?;
        Ok(added.into_iter().flat_map(Added::deltas).collect())
    }
}

/// `difference` of `chat.cpp`.
#[derive(Deserialize)]
struct Added {
    reasoning: Option<String>,
    content: Option<String>,
    call: Option<Call>,
}

#[derive(Deserialize)]
struct Call {
    index: usize,
    id: String,
    name: String,
    arguments: String,
}

impl Added {
    fn deltas(self) -> impl Iterator<Item = Delta> {
        let some = |text: String| (!text.is_empty()).then_some(text);
        let call = self.call.map(|Call { index, id, name, arguments }| Delta::Call {
            index,
            id: some(id),
            name: some(name),
            arguments,
        });
        [self.reasoning.map(Delta::Thought), self.content.map(Delta::Text), call].into_iter().flatten()
    }
}
