//! A model's chat template, applied by processes of its own.

use super::ask::{Ask, Source};
use super::conversation::{Conversation, Message, ToolChoice, Written};
use super::error::ChatTemplateError;
use super::pool::Pool;
use super::reader::{AnswerReader, Form};
use super::reasoning::ReasoningFormat;
use super::zeros::zero_in;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use terrace_ggml::llama::{Grammar, Purpose, Thoughts, Trigger};

/// A chat template, with the texts of the tokens that it writes.
#[derive(Debug)]
pub struct ChatTemplate {
    pool: Arc<Pool>,
    caps: Map<String, Value>,
}

impl ChatTemplate {
    /// Parses `source`; `bos` and `eos` are the texts that `{{ bos_token }}` and `{{ eos_token }}`
    /// write.
    ///
    /// # Errors
    /// [`ChatTemplateError::Syntax`], [`ChatTemplateError::Limit`], or
    /// [`ChatTemplateError::Process`] if the program has not called
    /// [`enter_chat_worker`](super::enter_chat_worker) first.
    pub fn parse(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, ChatTemplateError> {
        if source.trim().is_empty() {
            return Err(ChatTemplateError::Syntax("it is empty".into()));
        }
        let text = |token: Option<&str>| token.unwrap_or_default().to_owned();
        let source = Source { text: source.to_owned(), bos: text(bos), eos: text(eos) };
        let pool = Arc::new(Pool::new(Some(source)));
        let caps = serde_json::from_str(&pool.begin()?).unwrap_or_default();
        Ok(Self { pool, caps })
    }

    /// Capabilities of the template: llama.cpp's names, each true or false.
    pub const fn caps(&self) -> &Map<String, Value> {
        &self.caps
    }

    /// Returns true if the template can write this.
    pub fn can(&self, name: &str) -> bool {
        self.caps.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Renders a conversation of plain text. With `add_generation_prompt` it ends where the
    /// assistant's answer begins.
    ///
    /// # Errors
    /// As [`ChatTemplate::apply`].
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, ChatTemplateError> {
        let conversation = Conversation { add_generation_prompt, ..Conversation::of(messages) };
        self.apply(&conversation).map(|written| written.prompt)
    }

    /// Renders a conversation, and says how its answer is to be made and read.
    ///
    /// # Errors
    /// [`ChatTemplateError::Refused`] with the template's own message,
    /// [`ChatTemplateError::NoTools`], [`ChatTemplateError::Render`], [`ChatTemplateError::Grammar`], [`ChatTemplateError::Limit`]
    /// if it took too much, [`ChatTemplateError::Process`].
    pub fn apply(&self, conversation: &Conversation) -> Result<Written, ChatTemplateError> {
        let tools = !conversation.tools.is_empty() && conversation.tool_choice != ToolChoice::None;
        if tools && !self.can("supports_tools") && !self.can("supports_tool_calls") {
            return Err(ChatTemplateError::NoTools);
        }
        let request = serde_json::to_string(conversation).expect("a conversation is JSON");
        let told = self.pool.lease()?.ask(&Ask::Apply(request.into()))?;
        let applied: Applied = serde_json::from_str(&told)
            .map_err(|error| ChatTemplateError::Process(format!("its response is invalid: {error}")))?;
        match zero_in(&applied.grammar) {
            None => Ok(applied.written(conversation)),
            Some(reason) => Err(ChatTemplateError::Grammar(reason)),
        }
    }

    /// A reader of the answer to a conversation.
    ///
    /// # Errors
    /// [`ChatTemplateError::Limit`], [`ChatTemplateError::Process`].
    pub fn reader(&self, form: &Form) -> Result<AnswerReader, ChatTemplateError> {
        AnswerReader::new(&self.pool, form)
    }
}

/// `applied` of `chat.cpp`.
#[derive(Deserialize)]
struct Applied {
    prompt: String,
    grammar: String,
    grammar_lazy: bool,
    grammar_triggers: Vec<AppliedTrigger>,
    preserved_tokens: Vec<String>,
    additional_stops: Vec<String>,
    generation_prompt: String,
    thinking_start: String,
    thinking_ends: Vec<String>,
    format: i64,
    parser: String,
}

#[derive(Deserialize)]
struct AppliedTrigger {
    kind: i32,
    value: String,
    token: i32,
}

impl Applied {
    fn written(self, conversation: &Conversation) -> Written {
        let tools = !conversation.tools.is_empty() && conversation.tool_choice != ToolChoice::None;
        let trigger = |AppliedTrigger { kind, value, token }| Trigger { kind, value, token };
        let grammar = Grammar {
            // A template has no part in the user's own grammar.
            text: if self.grammar.is_empty() { conversation.grammar.clone() } else { self.grammar },
            purpose: match (tools, conversation.grammar.is_empty()) {
                (true, _) => Purpose::Tools,
                (false, true) => Purpose::Format,
                (false, false) => Purpose::User,
            },
            lazy: self.grammar_lazy,
            triggers: self.grammar_triggers.into_iter().map(trigger).collect(),
            preserved: self.preserved_tokens,
            begun: self.generation_prompt.clone(),
        };
        let thoughts = Thoughts {
            tokens: None,
            start: self.thinking_start,
            ends: self.thinking_ends,
            message: String::new(),
            begun: self.generation_prompt.clone(),
        };
        let thinks = !thoughts.start.is_empty() && !thoughts.ends.is_empty();
        let plain = self.parser.is_empty();
        let form = Form {
            format: self.format,
            parser: self.parser,
            generation_prompt: self.generation_prompt,
            reasoning_format: conversation.reasoning_format,
            parse_tool_calls: tools,
            continued: conversation.continue_final_message,
        };
        // JSON may stand in a fence, which is not part of the answer.
        let raw = conversation.reasoning_format == ReasoningFormat::None
            && !tools
            && conversation.json_schema.is_empty();
        Written {
            prompt: self.prompt,
            grammar: (!grammar.text.is_empty()).then_some(grammar),
            thoughts: thinks.then_some(thoughts),
            stop: self.additional_stops,
            form: (!plain && !raw).then_some(form),
        }
    }
}
