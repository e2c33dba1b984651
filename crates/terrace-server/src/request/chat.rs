//! Conversations: turns the fields of a chat into a prompt, and says how its answer is read.

use super::body::{Fields, wrong};
use super::constraint::Constraint;
use super::pictures::Pictures;
use super::turns::{Turns, tool_name, tools, turns};
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::{Value, json};
use terrace_engine::options::ThinkingOptions;
use terrace_engine::{Conversation, Images, ReasoningFormat, ToolChoice, Written};

/// A conversation, and what the request says of its answer's thoughts.
pub struct Chat {
    pub conversation: Conversation,
    /// True if the model thinks, if it can be told. `None`: the request does not say it.
    pub thinks: Option<bool>,
    /// Place of the reasoning. `None`: the request does not state it.
    format: Option<ReasoningFormat>,
    /// Maximum number of tokens of thoughts, `Some(None)` for as many as it takes. `None`: the request does
    /// not say it.
    pub thought_tokens: Option<Option<u32>>,
    /// Its images.
    pub pictures: Pictures,
}

/// A rendered conversation.
pub struct Rendered {
    pub written: Written,
    /// The images whose marks are in the prompt's text.
    pub images: Images,
}

impl Chat {
    /// Reads a conversation as OpenAI's API has it, with llama-server's additions.
    ///
    /// # Errors
    /// There is no conversation, or a field is not valid.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let messages = fields.required("messages")?;
        let mut chat = Self::of(turns(messages)?);
        let conversation = &mut chat.conversation;
        let begins = fields.flag("add_generation_prompt")?;
        conversation.add_generation_prompt = begins.unwrap_or(true);
        let goes_on = conversation.messages.last().is_some_and(|last| last["role"] == "assistant");
        // As llama.cpp's server does: what the assistant has begun, it goes on with.
        let wanted = fields.flag("continue_final_message")?;
        if wanted == Some(true) && begins == Some(true) {
            let message = "`continue_final_message` and `add_generation_prompt` exclude each other";
            return Err(ApiError::field("continue_final_message", message));
        }
        let wanted = wanted.unwrap_or(conversation.add_generation_prompt);
        conversation.continue_final_message = goes_on && wanted;
        if conversation.continue_final_message
            && let [.., before, _] = &conversation.messages[..]
            && before["role"] == "assistant"
        {
            let message = "`messages` ends with two turns of the assistant, so none of them can be continued";
            return Err(ApiError::field("messages", message));
        }
        if let Some(given) = fields.take("tools") {
            conversation.tools = tools(given)?;
        }
        if let Some(choice) = fields.take("tool_choice") {
            let place = fields.place("tool_choice");
            chat.choose(&place, choice)?;
        }
        if let Some(several) = fields.flag("parallel_tool_calls")? {
            chat.conversation.parallel_tool_calls = several;
        }
        chat.constrain(Constraint::read(fields)?)?;
        chat.think(fields)?;
        Ok(chat)
    }

    /// A conversation of these turns.
    pub fn of(turns: impl Into<Turns>) -> Self {
        let Turns { messages, pictures } = turns.into();
        let conversation = Conversation { messages, parallel_tool_calls: true, ..Conversation::default() };
        Self { conversation, thinks: None, format: None, thought_tokens: None, pictures }
    }

    /// Sets whether a tool has to be called. If it is a certain one, it is called once, and the
    /// others are left out.
    ///
    /// # Errors
    /// There is no such choice, or no such tool.
    pub fn choose(&mut self, place: &str, choice: Value) -> Result<(), ApiError> {
        let conversation = &mut self.conversation;
        let name = match &choice {
            Value::String(choice) => {
                conversation.tool_choice = match choice.as_str() {
                    "auto" => ToolChoice::Auto,
                    "none" => ToolChoice::None,
                    "required" | "any" => ToolChoice::Required,
                    other => {
                        let message =
                            format!("`{place}` is `{other}`, but must be auto, none, required or a tool");
                        return Err(ApiError::field(place, message));
                    }
                };
                if conversation.tool_choice == ToolChoice::Required && conversation.tools.is_empty() {
                    return Err(ApiError::field(
                        place,
                        format!("`{place}` requires a call, but there are no `tools`"),
                    ));
                }
                return Ok(());
            }
            Value::Object(choice) => {
                let function = choice.get("function").and_then(|function| function.get("name"));
                function.or_else(|| choice.get("name")).and_then(Value::as_str)
            }
            _ => None,
        };
        let Some(name) = name else { return Err(wrong(place, &choice, "a choice, or a tool by name")) };
        conversation.tools.retain(|tool| tool_name(tool) == name);
        if conversation.tools.is_empty() {
            return Err(ApiError::field(
                place,
                format!("`{place}` names the tool `{name}`, which is not in `tools`"),
            ));
        }
        conversation.tool_choice = ToolChoice::Required;
        conversation.parallel_tool_calls = false;
        Ok(())
    }

    /// Sets what the answer may be.
    ///
    /// # Errors
    /// There are tools as well.
    pub fn constrain(&mut self, constraint: Constraint) -> Result<(), ApiError> {
        let calls = !self.conversation.tools.is_empty() && self.conversation.tool_choice != ToolChoice::None;
        if calls && !constraint.grammar.is_empty() {
            return Err(ApiError::field("grammar", "`grammar` cannot be used together with `tools`"));
        }
        self.conversation.grammar = constraint.grammar;
        self.conversation.json_schema = constraint.schema;
        Ok(())
    }

    /// Reads the fields about thoughts, which have llama-server's names in all APIs.
    ///
    /// # Errors
    /// A field is not valid.
    pub fn think(&mut self, fields: &mut Fields) -> Result<(), ApiError> {
        if let Some(format) = fields.text("reasoning_format")? {
            let known = format.parse::<ReasoningFormat>().map_err(|error| {
                let place = fields.place("reasoning_format");
                let message = format!("`{place}` is `{format}`: {error}");
                ApiError::field(place, message)
            })?;
            self.format = Some(known);
        }
        if let Some(effort) = fields.text("reasoning_effort")? {
            self.try_hard(&effort);
        }
        if let Some(given) = fields.take("chat_template_kwargs") {
            let Value::Object(given) = given else {
                return Err(wrong(&fields.place("chat_template_kwargs"), &given, "an object"));
            };
            for (name, value) in given {
                if name == "enable_thinking" {
                    self.thinks = Some(value != json!(false) && value != json!("false"));
                }
                self.variable(&name, &value);
            }
        }
        if let Some(thinking) = fields.take("thinking") {
            self.read_thinking(&fields.place("thinking"), thinking)?;
        }
        if let Some(verbosity) = fields.text("verbosity")? {
            self.variable("verbosity", &verbosity.into());
        }
        if let Some(flag) = fields.flag("enable_thinking")? {
            self.thinks = Some(flag);
        }
        for name in ["thinking_budget_tokens", "reasoning_budget_tokens"] {
            if let Some(tokens) = fields.integer(name, -1..=i64::from(i32::MAX))? {
                self.thought_tokens = Some(u32::try_from(tokens).ok());
            }
        }
        Ok(())
    }

    /// Reads `thinking` of Anthropic's API, which servers of OpenAI's have as well: an object, or only its type.
    fn read_thinking(&mut self, place: &str, thinking: Value) -> Result<(), ApiError> {
        let mut thinking = match thinking {
            Value::Bool(thinks) => {
                self.thinks = Some(thinks);
                return Ok(());
            }
            Value::String(kind) => Fields::within(place, json!({"type": kind}))?,
            thinking => Fields::within(place, thinking)?,
        };
        self.thinks = match thinking.text("type")?.as_deref() {
            Some("disabled") => Some(false),
            // As the model has it.
            Some("auto") => self.thinks,
            _ => Some(true),
        };
        if let Some(budget) = thinking.integer("budget_tokens", 0..=i64::from(i32::MAX))? {
            self.thought_tokens = Some(u32::try_from(budget).ok());
        }
        for ignored in ["display", "clear_thinking", "keep"] {
            thinking.take(ignored);
        }
        thinking.finish()
    }

    /// Sets how hard the model should think; `none`: not at all.
    pub fn try_hard(&mut self, effort: &str) {
        self.thinks = Some(effort != "none");
        self.variable("reasoning_effort", &effort.into());
    }

    /// Sets a variable of the template.
    pub fn variable(&mut self, name: &str, value: &Value) {
        self.conversation.chat_template_kwargs.insert(name.into(), value.to_string());
    }

    /// The conversation with what the request does not say, and the limit of its thoughts.
    fn complete(&self, defaults: &ThinkingOptions) -> (Conversation, Option<u32>) {
        let mut conversation = self.conversation.clone();
        defaults.complete(&mut conversation, self.thinks, self.format);
        (conversation, self.thought_tokens.unwrap_or_else(|| defaults.budget()))
    }

    /// Renders the conversation with the model's template.
    ///
    /// # Errors
    /// The model has no template, or it refuses the conversation; or it reads no images.
    pub fn write(&self, ready: &Ready) -> Result<Rendered, ApiError> {
        let images = self.pictures.of(ready)?.clone();
        let template = ready.template()?;
        let (conversation, thought_tokens) = self.complete(&ready.thinking);
        if !self.conversation.grammar.is_empty() {
            ready.grammars.check(&self.conversation.grammar)?;
        }
        let mut written = template.apply(&conversation)?;
        if let Some(thoughts) = &mut written.thoughts {
            ready.thinking.limit(thoughts, thought_tokens);
        }
        Ok(Rendered { written, images })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_engine::options::Reasoning;

    fn read(body: Value) -> Result<Chat, ApiError> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        let chat = Chat::read(&mut fields)?;
        fields.finish()?;
        Ok(chat)
    }

    fn with(more: Value) -> Value {
        let mut body = json!({
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}],
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }

    #[test]
    fn a_named_tool_is_the_only_one_and_required() {
        let chat =
            read(with(json!({"tool_choice": {"type": "function", "function": {"name": "b"}}}))).unwrap();
        assert_eq!(chat.conversation.tool_choice, ToolChoice::Required);
        assert_eq!(chat.conversation.tools.iter().map(tool_name).collect::<Vec<_>>(), ["b"]);
        assert!(!chat.conversation.parallel_tool_calls);
        let chat = read(with(json!({"tool_choice": "none"}))).unwrap();
        assert_eq!((chat.conversation.tool_choice, chat.conversation.tools.len()), (ToolChoice::None, 2));
    }

    #[test]
    fn the_assistants_last_turn_is_continued() {
        let turns = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]);
        assert!(read(json!({"messages": turns})).unwrap().conversation.continue_final_message);
        let not = read(json!({"messages": turns, "continue_final_message": false})).unwrap();
        assert!(!not.conversation.continue_final_message);
        assert!(!read(with(json!({}))).unwrap().conversation.continue_final_message);
        let both = json!({"messages": turns, "continue_final_message": true, "add_generation_prompt": true});
        assert!(read(both).err().unwrap().message().contains("exclude each other"));
        let turn = &turns[1];
        let error = read(json!({"messages": [turns[0], turn, turn]})).err().unwrap();
        assert!(error.message().contains("two turns of the assistant"), "{}", error.message());
    }

    #[test]
    fn thoughts_are_wanted_or_not() {
        let default = |variables: Value, reasoning| ThinkingOptions {
            reasoning,
            chat_template_kwargs: variables.as_object().cloned(),
            ..ThinkingOptions::default()
        };
        let thinks =
            |defaults: &ThinkingOptions, more| read(with(more)).unwrap().complete(defaults).0.enable_thinking;
        let on = |more| thinks(&ThinkingOptions::default(), more);
        assert!(on(json!({})) && on(json!({"reasoning_effort": "low"})));
        assert!(!on(json!({"reasoning_effort": "none"})));
        assert!(!on(json!({"chat_template_kwargs": {"enable_thinking": false}})));
        for off in [
            default(json!({}), Reasoning::Off),
            default(json!({"reasoning_effort": "none"}), Reasoning::Auto),
        ] {
            assert!(!thinks(&off, json!({})) && thinks(&off, json!({"enable_thinking": true})), "{off:?}");
        }
        let chat =
            read(with(json!({"thinking_budget_tokens": 7, "chat_template_kwargs": {"a": [1]}}))).unwrap();
        let defaults = ThinkingOptions {
            reasoning_format: ReasoningFormat::None,
            reasoning_budget: 3,
            ..default(json!({"a": 1, "b": "x"}), Reasoning::Auto)
        };
        let (conversation, tokens) = chat.complete(&defaults);
        let variables = &conversation.chat_template_kwargs;
        assert_eq!((tokens, &variables["a"][..], &variables["b"][..]), (Some(7), "[1]", "\"x\""));
        assert_eq!(conversation.reasoning_format, ReasoningFormat::None);
        let (conversation, tokens) =
            read(with(json!({"reasoning_format": "deepseek"}))).unwrap().complete(&defaults);
        assert_eq!((conversation.reasoning_format, tokens), (ReasoningFormat::Deepseek, Some(3)));
        let none = read(with(json!({"thinking_budget_tokens": -1}))).unwrap().complete(&defaults);
        assert_eq!(none.1, None, "the request wants no limit");
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        for (more, part) in [
            (json!({"tool_choice": "must"}), "`tool_choice` is `must`"),
            (json!({"tool_choice": {"function": {"name": "c"}}}), "names the tool `c`"),
            (json!({"tool_choice": 5}), "`tool_choice` is a number"),
            (json!({"tool_choice": "required", "tools": []}), "there are no `tools`"),
            (json!({"grammar": "root ::= \"a\""}), "cannot be used together with `tools`"),
            (json!({"reasoning_format": "loud"}), "`reasoning_format` is `loud`"),
            (json!({"chat_template_kwargs": 5}), "`chat_template_kwargs` is a number"),
        ] {
            let Err(error) = read(with(more)) else { panic!("{part}") };
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}
