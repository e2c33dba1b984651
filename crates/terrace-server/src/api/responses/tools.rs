//! The tools of OpenAI's responses, as functions that templates know.

use crate::error::ApiError;
use crate::request::body::{Fields, wrong};
use crate::request::chat::Chat;
use crate::request::turns::{self as common, tool_name};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The name of the one argument that a custom tool has as a function.
const INPUT: &str = "input";
/// Between the name of a namespace and that of a tool in it.
const WITHIN: &str = "__";

/// The tools of a request.
#[derive(Debug, Default)]
pub struct Tools {
    /// As the model is told.
    pub functions: Vec<Value>,
    /// As they were given, without those left out.
    pub given: Vec<Value>,
    /// Clients' names, by those that the model gets.
    pub names: Names,
}

/// Clients' names of tools, by those that the model gets.
pub type Names = BTreeMap<String, Named>;

/// A client's name of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    pub namespace: Option<String>,
    /// True if its input is a text, not JSON.
    pub is_custom: bool,
}

/// The name that the model is told.
pub fn shown_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        // Namespaces of MCP servers end so themselves.
        Some(namespace) if namespace.ends_with(WITHIN) => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}{WITHIN}{name}"),
        None => name.into(),
    }
}

/// The arguments of a custom tool's function for this input.
pub fn custom_arguments(input: &str) -> String {
    json!({INPUT: input}).to_string()
}

/// The input of a custom tool in its function's arguments. If the call was cut off, they are not
/// JSON, and there is none.
pub fn custom_input(arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    arguments[INPUT].as_str().unwrap_or_default().into()
}

impl Tools {
    /// Reads functions, custom tools, and namespaces of both. Other tools are done by OpenAI's
    /// service or need models that were trained for them; they are left out, as by llama.cpp's
    /// server, because clients send them unasked.
    ///
    /// # Errors
    /// A tool is not valid, or two have the same name.
    pub fn read(value: Value) -> Result<Self, ApiError> {
        let Value::Array(values) = value else { return Err(wrong("tools", &value, "an array")) };
        let mut tools = Self::default();
        for (index, value) in values.into_iter().enumerate() {
            let known = tools.functions.len();
            let kind = value["type"].as_str().unwrap_or_default().to_owned();
            let path = format!("tools[{index}]");
            if kind == "namespace" {
                let mut namespace = Fields::within(&path, value.clone())?;
                let name = namespace.required_text("name")?;
                let inner = namespace.place("tools");
                let Some(Value::Array(values)) = namespace.take("tools") else {
                    return Err(ApiError::field(&inner, format!("`{inner}` is not an array")));
                };
                for (index, value) in values.into_iter().enumerate() {
                    tools.add(&format!("{inner}[{index}]"), value, Some(&name))?;
                }
            } else {
                tools.add(&path, value.clone(), None)?;
            }
            if tools.functions.len() > known {
                tools.given.push(value);
            } else {
                tracing::debug!(%kind, "a tool is left out");
            }
        }
        tools.functions = common::tools(tools.functions.into())?;
        Ok(tools)
    }

    fn add(&mut self, path: &str, value: Value, namespace: Option<&str>) -> Result<(), ApiError> {
        let mut tool = Fields::within(path, value)?;
        let (description, parameters, is_custom) = match tool.text("type")?.as_deref() {
            // Some clients send functions as in conversations.
            Some("function") => {
                let place = tool.place("function");
                let function = match tool.take("function") {
                    Some(inner) => Fields::within(&place, inner)?,
                    None => tool,
                };
                return self.add_function(function, namespace);
            }
            Some("custom") => {
                let format = tool.take("format").unwrap_or_default();
                let grammar = format["definition"].as_str().map(|definition| {
                    let syntax = format["syntax"].as_str().unwrap_or_default();
                    format!("\n\nThe input follows this grammar ({syntax}):\n{definition}")
                });
                let description = tool.text("description")?.unwrap_or_default();
                let input = json!({"type": "string", "description": "The tool's input, as plain text."});
                let parameters = json!({"type": "object", "properties": {INPUT: input}, "required": [INPUT]});
                (description + &grammar.unwrap_or_default(), parameters, true)
            }
            Some(_) => return Ok(()),
            None => {
                return Err(ApiError::missing(&tool.place("type")));
            }
        };
        let name = tool.required_text("name")?;
        self.push(
            &tool,
            Named { name, namespace: namespace.map(Into::into), is_custom },
            description.into(),
            parameters,
        )
    }

    fn add_function(&mut self, mut tool: Fields, namespace: Option<&str>) -> Result<(), ApiError> {
        let named = Named {
            name: tool.required_text("name")?,
            namespace: namespace.map(Into::into),
            is_custom: false,
        };
        let description = tool.take("description").unwrap_or_default();
        let parameters = tool.take("parameters").unwrap_or_default();
        if !parameters.is_object() && !parameters.is_null() {
            return Err(wrong(&tool.place("parameters"), &parameters, "a JSON schema"));
        }
        self.push(&tool, named, description, parameters)
    }

    fn push(
        &mut self,
        tool: &Fields,
        named: Named,
        description: Value,
        parameters: Value,
    ) -> Result<(), ApiError> {
        let name = shown_name(named.namespace.as_deref(), &named.name);
        let function = json!({"name": name, "description": description, "parameters": parameters});
        self.functions.push(json!({"type": "function", "function": function}));
        if self.names.insert(name.clone(), named).is_some() {
            let place = tool.place("name");
            return Err(ApiError::field(place, format!("`tools` has two tools that are called `{name}`")));
        }
        Ok(())
    }
}

/// Sets whether a tool has to be called.
///
/// # Errors
/// There is no such choice, or no such tool.
pub fn choose(chat: &mut Chat, choice: Value) -> Result<(), ApiError> {
    const PLACE: &str = "tool_choice";
    match choice["type"].as_str() {
        None | Some("function" | "custom") => chat.choose(PLACE, choice),
        Some("allowed_tools") => {
            let mut choice = Fields::within(PLACE, choice)?;
            choice.take("type");
            let place = choice.place("tools");
            let Some(Value::Array(allowed)) = choice.take("tools") else {
                return Err(ApiError::field(&place, format!("`{place}` is not an array")));
            };
            let named = |tool: &Value| allowed.iter().any(|one| one["name"] == tool_name(tool));
            chat.conversation.tools.retain(named);
            let mode = choice.take("mode").unwrap_or_else(|| "auto".into());
            choice.finish()?;
            chat.choose("tool_choice.mode", mode)
        }
        Some(other) => {
            let message = format!("`tool_choice` asks for `{other}`, which this server does not have");
            Err(ApiError::unsupported(PLACE, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_engine::ToolChoice;

    #[test]
    fn tools_are_functions_under_names_of_their_own() {
        let tools = Tools::read(json!([
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true},
            {"type": "function", "function": {"name": "g", "description": "as in chats"}},
            {"type": "web_search", "search_context_size": "low"},
            {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
            {"type": "namespace", "name": "mcp__files__", "tools": [{"type": "function", "name": "open", "strict": false}]},
        ]))
        .unwrap();
        let names: Vec<_> = tools.functions.iter().map(tool_name).collect();
        assert_eq!(names, ["f", "g", "patch", "mcp__files__open"]);
        assert_eq!(tools.given.len(), 4, "what the model is not told is not given back");
        assert!(tools.functions[2]["function"]["description"].as_str().unwrap().contains("start: X"));
        let open = Named { name: "open".into(), namespace: Some("mcp__files__".into()), is_custom: false };
        assert_eq!(tools.names["mcp__files__open"], open);
        assert!(tools.names["patch"].is_custom);
        assert_eq!(custom_input(&custom_arguments("a\n\"b\"")), "a\n\"b\"");
        assert_eq!(custom_input("{\"inp"), "");
    }

    #[test]
    fn what_is_no_tool_is_named() {
        for (value, part) in [
            (json!({}), "`tools` is an object, not an array"),
            (json!([{"name": "f"}]), "`tools[0].type` is missing"),
            (json!([{"type": "function"}]), "`tools[0].name` is missing"),
            (
                json!([{"type": "function", "name": "f", "parameters": 5}]),
                "`tools[0].parameters` is a number",
            ),
            (json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}]), "called `f`"),
            (json!([{"type": "namespace", "name": "n"}]), "`tools[0].tools` is not an array"),
        ] {
            let error = Tools::read(value).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }

    #[test]
    fn choices_are_kept_to_the_tools_there_are() {
        let chat = |choice: Value| {
            let mut chat = Chat::of(Vec::<Value>::new());
            let tools = json!([{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]);
            chat.conversation.tools = Tools::read(tools).unwrap().functions;
            choose(&mut chat, choice).map(|()| chat.conversation)
        };
        let one = chat(json!({"type": "function", "name": "g"})).unwrap();
        assert_eq!((one.tools.len(), one.tool_choice), (1, ToolChoice::Required));
        let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]});
        let some = chat(allowed).unwrap();
        assert_eq!((some.tools.len(), some.tool_choice), (1, ToolChoice::Required));
        assert_eq!(chat(json!("none")).unwrap().tool_choice, ToolChoice::None);
        for (choice, part) in [
            (json!({"type": "web_search"}), "asks for `web_search`"),
            (json!({"type": "function", "name": "h"}), "names the tool `h`"),
            (json!("must"), "`tool_choice` is `must`"),
        ] {
            let error = chat(choice).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}
