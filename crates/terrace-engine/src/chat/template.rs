//! A model's chat template, applied by processes of its own.

use super::ask::{Ask, Source};
use super::conversation::{Conversation, Message, ToolChoice, Written};
use super::cut_calls;
use super::either::either;
use super::error::ChatTemplateError;
use super::pool::Pool;
use super::reader::{AnswerReader, Form, JsonForm};
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
        let mut process = self.pool.lease()?;
        write(conversation, self.can("supports_object_arguments"), &mut |ask| process.ask(ask))
    }

    /// A reader of the answer to a conversation.
    ///
    /// # Errors
    /// [`ChatTemplateError::Limit`], [`ChatTemplateError::Process`].
    pub fn reader(&self, form: &Form) -> Result<AnswerReader, ChatTemplateError> {
        AnswerReader::new(&self.pool, form)
    }
}

/// Renders a conversation with what answers questions about its template, which `takes_objects` as arguments of
/// calls, or texts.
///
/// # Errors
/// As [`ChatTemplate::apply`].
pub(super) fn write(
    conversation: &Conversation,
    takes_objects: bool,
    ask: &mut impl FnMut(&Ask<'_>) -> Result<String, ChatTemplateError>,
) -> Result<Written, ChatTemplateError> {
    let [text, within] = cut_calls::ways(takes_objects);
    let Some(as_text) = cut_calls::rewritten(conversation, text) else {
        return write_sound(conversation, ask);
    };
    match write_sound(&as_text, ask) {
        Err(error) if error.is_harmless() => {
            let within = cut_calls::rewritten(conversation, within).unwrap_or(as_text);
            write_sound(&within, ask).map_err(|_| error)
        }
        written => written,
    }
}

/// Renders a conversation whose calls have arguments that the template takes.
fn write_sound(
    conversation: &Conversation,
    ask: &mut impl FnMut(&Ask<'_>) -> Result<String, ChatTemplateError>,
) -> Result<Written, ChatTemplateError> {
    let both = !conversation.tools.is_empty() && !conversation.json_schema.is_empty();
    match conversation.tool_choice {
        // A call has no schema but its tool's.
        ToolChoice::Required if both => {
            let conversation = Conversation { json_schema: String::new(), ..conversation.clone() };
            applied(&conversation, ask)?.written(&conversation)
        }
        ToolChoice::Auto if both => either_of(conversation, ask),
        _ => applied(conversation, ask)?.written(conversation),
    }
}

fn applied(
    conversation: &Conversation,
    ask: &mut impl FnMut(&Ask<'_>) -> Result<String, ChatTemplateError>,
) -> Result<Applied, ChatTemplateError> {
    let request = serde_json::to_string(conversation).expect("a conversation is JSON");
    serde_json::from_str(&ask(&Ask::Apply(request.into()))?)
        .map_err(|error| ChatTemplateError::Process(format!("its response is invalid: {error}")))
}

/// Renders a conversation whose answer is a call or JSON by a schema.
fn either_of(
    conversation: &Conversation,
    ask: &mut impl FnMut(&Ask<'_>) -> Result<String, ChatTemplateError>,
) -> Result<Written, ChatTemplateError> {
    // As if calls were forbidden: some templates would apply the schema to what follows a call only.
    let format = Conversation { tool_choice: ToolChoice::None, ..conversation.clone() };
    let json = applied(&format, ask)?;
    let calls = Conversation {
        json_schema: String::new(),
        tool_choice: ToolChoice::Required,
        ..conversation.clone()
    };
    let mut call = applied(&calls, ask)?;
    // Where llama.cpp knows no form of calls, or the schema says nothing, there is one kind of answer.
    if call.grammar.is_empty() || call.parser.is_empty() {
        return json.written(&format);
    }
    if json.grammar.is_empty() || json.parser.is_empty() {
        let free = Conversation { json_schema: String::new(), ..conversation.clone() };
        return applied(&free, ask)?.written(&free);
    }
    call.grammar = either(&call.grammar, &json.grammar);
    ask(&Ask::Grammar(call.grammar.as_str().into()))?;
    // Its text may have what only the schema's template has.
    call.prompt = json.prompt;
    call.preserved_tokens.extend(json.preserved_tokens);
    let stops: Vec<String> =
        json.additional_stops.into_iter().filter(|stop| !call.additional_stops.contains(stop)).collect();
    call.additional_stops.extend(stops);
    let form =
        JsonForm { format: json.format, parser: json.parser, generation_prompt: json.generation_prompt };
    let mut written = call.written(&calls)?;
    written.form = written.form.map(|calls| Form { json: Some(form), ..calls });
    Ok(written)
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
    fn written(self, conversation: &Conversation) -> Result<Written, ChatTemplateError> {
        if let Some(reason) = zero_in(&self.grammar) {
            return Err(ChatTemplateError::Grammar(reason));
        }
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
            json: None,
        };
        // JSON may stand in a fence, which is not part of the answer.
        let raw = conversation.reasoning_format == ReasoningFormat::None
            && !tools
            && conversation.json_schema.is_empty();
        Ok(Written {
            prompt: self.prompt,
            grammar: (!grammar.text.is_empty()).then_some(grammar),
            thoughts: thinks.then_some(thoughts),
            stop: self.additional_stops,
            form: (!plain && !raw).then_some(form),
        })
    }
}
