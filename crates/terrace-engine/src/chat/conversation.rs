//! Conversations, and what a template makes of them.

use super::reader::Form;
use super::reasoning::ReasoningFormat;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use terrace_ggml::llama::{Grammar, Thoughts};

/// One turn of a conversation of plain text.
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
    /// Returns true if a text already begins with the beginning-of-document token, which most templates
    /// write themselves.
    pub fn begin(&self, text: &str) -> bool {
        self.bos.as_ref().is_some_and(|bos| !bos.is_empty() && text.starts_with(bos))
    }
}

/// A conversation, and what its answer is to be.
#[derive(Clone, Debug, Serialize)]
pub struct Conversation {
    /// The turns, as in OpenAI's API: role, content (a string, an array of texts, or null),
    /// `tool_calls`, `tool_call_id`, `name`, `reasoning_content`.
    pub messages: Vec<Value>,
    /// The tools that the model may call, as in OpenAI's API.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Whether it has to call one.
    pub tool_choice: ToolChoice,
    /// True if it may call several in one turn.
    pub parallel_tool_calls: bool,
    /// True if the prompt ends where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// True if the answer goes on with the last turn, which is the assistant's.
    pub continue_final_message: bool,
    /// True if the model may think, if it can be told.
    pub enable_thinking: bool,
    /// Place of the reasoning.
    pub reasoning_format: ReasoningFormat,
    /// The user's grammar for the answer; empty: none.
    pub grammar: String,
    /// The JSON schema of the answer, as text; empty: none.
    pub json_schema: String,
    /// Further variables of the template, with their values as JSON text.
    pub chat_template_kwargs: BTreeMap<String, String>,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: false,
            add_generation_prompt: true,
            continue_final_message: false,
            enable_thinking: true,
            reasoning_format: ReasoningFormat::Auto,
            grammar: String::new(),
            json_schema: String::new(),
            chat_template_kwargs: BTreeMap::new(),
        }
    }
}

impl Conversation {
    /// A conversation of plain text.
    pub fn of(messages: &[Message]) -> Self {
        let turn = |message: &Message| serde_json::json!({"role": message.role, "content": message.content});
        Self { messages: messages.iter().map(turn).collect(), ..Self::default() }
    }
}

/// Obligation of a model to call a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it thinks.
    #[default]
    Auto,
    /// It has to.
    Required,
    /// It must not.
    None,
}

/// A conversation as a template writes it.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The prompt's text.
    pub prompt: String,
    /// Constraint of tokens.
    pub grammar: Option<Grammar>,
    /// Signs of reasoning. Without a limit of its own.
    pub thoughts: Option<Thoughts>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Form of the response. `None`: all of it is content.
    pub form: Option<Form>,
}
