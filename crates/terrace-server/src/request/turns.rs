//! The turns of a conversation, checked and in the form that templates take.

use super::body::{Fields, wrong};
use super::constraint::followable;
use super::pictures::Pictures;
use crate::error::ApiError;
use serde_json::{Map, Value, json};

/// The turns of a conversation, and their images, for which marks stand in the texts.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    pub messages: Vec<Value>,
    pub pictures: Pictures,
}

impl From<Vec<Value>> for Turns {
    fn from(messages: Vec<Value>) -> Self {
        Self { messages, pictures: Pictures::default() }
    }
}

/// The turns of a conversation, as in OpenAI's API.
///
/// # Errors
/// A turn is not valid, or has unsupported content.
pub fn turns(value: Value) -> Result<Turns, ApiError> {
    turns_with(value, Pictures::default())
}

/// As [`turns`], of turns in which marks of `pictures` stand already.
///
/// # Errors
/// As [`turns`].
pub fn turns_with(value: Value, mut pictures: Pictures) -> Result<Turns, ApiError> {
    let Value::Array(values) = value else { return Err(wrong("messages", &value, "an array")) };
    if values.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty"));
    }
    let turn = |(index, value)| turn(&format!("messages[{index}]"), value, &mut pictures);
    let messages = values.into_iter().enumerate().map(turn).collect::<Result<_, _>>()?;
    Ok(Turns { messages, pictures })
}

fn turn(path: &str, value: Value, pictures: &mut Pictures) -> Result<Value, ApiError> {
    let mut fields = Fields::within(path, value)?;
    let role = fields.required_text("role")?;
    if !["developer", "system", "user", "assistant", "tool"].contains(&role.as_str()) {
        let message =
            format!("`{path}.role` is `{role}`, but must be system, developer, user, assistant or tool");
        return Err(ApiError::unsupported(&format!("{path}.role"), message));
    }
    let calls = match fields.take("tool_calls") {
        Some(Value::Array(calls)) => calls
            .into_iter()
            .enumerate()
            .map(|(index, call)| tool_call(&format!("{path}.tool_calls[{index}]"), call))
            .collect::<Result<Vec<_>, _>>()?,
        Some(other) => return Err(wrong(&fields.place("tool_calls"), &other, "an array")),
        None => Vec::new(),
    };
    if fields.take("function_call").is_some() {
        let place = fields.place("function_call");
        return Err(ApiError::unsupported(&place, format!("`{place}` is not supported: use `tool_calls`")));
    }
    let images = images(&mut fields, pictures)?;
    let place = fields.place("content");
    // What was said was nothing: a call that the token limit cut off, or a refusal.
    let nothing = fields.is_null("content") || role == "assistant";
    let content = match fields.take("content") {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => {
            Some(parts.into_iter().map(|value| part(&place, value, pictures)).collect::<Result<_, _>>()?)
        }
        Some(other) => return Err(wrong(&place, &other, "a string or an array of parts")),
        None => None,
    };
    // As Ollama does: before the text.
    let content = match images {
        images if images.is_empty() => content,
        images => Some(images + &content.unwrap_or_default()),
    };
    // Clients name thoughts in several ways.
    let thoughts = [fields.text("reasoning_content")?, fields.text("reasoning")?, fields.text("thinking")?];
    let thoughts = thoughts.into_iter().flatten().find(|text| !text.is_empty());
    let content = match content {
        None if calls.is_empty() && thoughts.is_none() && nothing => Some(String::new()),
        None if calls.is_empty() && thoughts.is_none() => return Err(ApiError::missing(&place)),
        content => content,
    };
    let mut turn = Map::new();
    turn.insert("role".into(), role.into());
    turn.insert("content".into(), content.map_or(Value::Null, Value::String));
    if !calls.is_empty() {
        turn.insert("tool_calls".into(), calls.into());
    }
    for name in ["tool_call_id", "name", "tool_name"] {
        if let Some(text) = fields.text(name)? {
            // Ollama's name for the same.
            turn.insert(if name == "tool_name" { "name" } else { name }.into(), text.into());
        }
    }
    if let Some(thoughts) = thoughts {
        turn.insert("reasoning_content".into(), thoughts.into());
    }
    // Other fields of a turn (a refusal, annotations) are not part of templates.
    Ok(Value::Object(turn))
}

/// A call of a tool; Ollama's have no type and their arguments are objects.
fn tool_call(path: &str, value: Value) -> Result<Value, ApiError> {
    let mut call = Fields::within(path, value)?;
    match call.text("type")?.as_deref() {
        None | Some("function") => {}
        Some(other) => {
            let place = call.place("type");
            return Err(ApiError::unsupported(&place, format!("`{place}` is `{other}`, not function")));
        }
    }
    let id = call.text("id")?.unwrap_or_default();
    let place = call.place("function");
    let mut function = Fields::within(&place, call.required("function")?)?;
    let name = function.required_text("name")?;
    let arguments = match function.take("arguments") {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text,
        // What a model has said is no reason to refuse what comes next.
        Some(value) => value.to_string(),
    };
    Ok(json!({"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}))
}

/// The marks of the images of Ollama's field `images`.
///
/// # Errors
/// It is not an array of texts in base64.
pub fn images(fields: &mut Fields, pictures: &mut Pictures) -> Result<String, ApiError> {
    let place = fields.place("images");
    match fields.take("images") {
        None => Ok(String::new()),
        Some(Value::Array(images)) => images
            .iter()
            .map(|image| match image {
                Value::String(data) => pictures.base64(&place, data),
                other => Err(wrong(&place, other, "an array of texts in base64")),
            })
            .collect(),
        Some(other) => Err(wrong(&place, &other, "an array of texts in base64")),
    }
}

/// The text of a part of a turn's content, or what stands for its image.
///
/// # Errors
/// It is neither, or the image is not in a data URL.
pub fn part(place: &str, value: Value, pictures: &mut Pictures) -> Result<String, ApiError> {
    let mut part = Fields::within(place, value)?;
    match part.text("type")?.as_deref() {
        Some("text" | "input_text" | "output_text") => {}
        Some("refusal") => return Ok(part.text("refusal")?.unwrap_or_default()),
        Some("image_url" | "input_image") => {
            let place = part.place("image_url");
            // An object, or in OpenAI's responses the URL itself.
            let url = match part.required("image_url")? {
                Value::String(url) => url,
                value => Fields::within(&place, value)?.required_text("url")?,
            };
            return pictures.url(&place, &url);
        }
        _ => return Err(no_media(place)),
    }
    part.text("text")?
        .ok_or_else(|| ApiError::field(place, format!("`{place}` has a text part without text")))
}

fn no_media(place: &str) -> ApiError {
    ApiError::unsupported(place, format!("`{place}` has a part that is neither text nor an image"))
}

/// The tools that a model may call, as in OpenAI's API.
///
/// # Errors
/// A tool is not a function with a name.
pub fn tools(value: Value) -> Result<Vec<Value>, ApiError> {
    let Value::Array(values) = value else { return Err(wrong("tools", &value, "an array")) };
    values.into_iter().enumerate().map(|(index, value)| tool(&format!("tools[{index}]"), value)).collect()
}

fn tool(path: &str, value: Value) -> Result<Value, ApiError> {
    let mut tool = Fields::within(path, value)?;
    match tool.text("type")?.as_deref() {
        None | Some("function") => {}
        Some(other) => {
            let place = tool.place("type");
            let message =
                format!("`{place}` is `{other}`: this server has no tools of its own, only functions");
            return Err(ApiError::unsupported(&place, message));
        }
    }
    let place = tool.place("function");
    let mut function = Fields::within(&place, tool.required("function")?)?;
    let name = function.required_text("name")?;
    let description = function.text("description")?.unwrap_or_default();
    let parameters =
        function.take("parameters").unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let place = function.place("parameters");
    if !parameters.is_object() {
        return Err(wrong(&place, &parameters, "a JSON schema"));
    }
    // Calls follow the schema in any case, as far as that is possible.
    let counts = function.take("strict") == Some(Value::Bool(true));
    function.finish()?;
    let followed = followable(&place, &parameters, counts)?;
    // Templates show the schema to the model: as it was given, unless it cannot be followed so.
    let parameters = match serde_json::from_str(&followed.text) {
        Ok(changed) if followed.changed => changed,
        _ => parameters,
    };
    let function = json!({"name": name, "description": description, "parameters": parameters});
    Ok(json!({"type": "function", "function": function}))
}

/// The name of a tool of [`tools`].
pub fn tool_name(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_turns_of_text_and_calls() {
        let got = turns(json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "me"},
            {"role": "assistant", "content": "", "tool_calls": []},
            {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
            {"role": "tool", "content": "5", "tool_call_id": "c"},
            {"role": "assistant", "content": null},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]},
        ]));
        let call = json!({"type": "function", "id": "", "function": {"name": "f", "arguments": "{\"x\":1}"}});
        let expected = json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": "ab", "name": "me"},
            {"role": "assistant", "content": ""},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "content": "5", "tool_call_id": "c"},
            {"role": "assistant", "content": ""},
            {"role": "assistant", "content": null, "tool_calls": [
                {"type": "function", "id": "", "function": {"name": "f", "arguments": "[1]"}},
            ]},
        ]);
        assert_eq!(Value::Array(got.unwrap().messages), expected);
    }

    #[test]
    fn what_is_no_turn_is_named() {
        for (value, part) in [
            (json!("hi"), "`messages` is a string, not an array"),
            (json!([]), "`messages` is empty"),
            (json!(["hi"]), "`messages[0]` is a string, not an object"),
            (json!([{"role": "user"}]), "`messages[0].content` is missing"),
            (json!([{"content": "x"}]), "`messages[0].role` is missing"),
            (json!([{"role": "user", "content": 5}]), "`messages[0].content` is a number"),
            (json!([{"role": "critic", "content": "5"}]), "`messages[0].role` is `critic`"),
            (json!([{"role": "user", "content": [{"type": "input_audio"}]}]), "neither text nor an image"),
            (
                json!([{"role": "user", "content": [{"type": "image_url"}]}]),
                "`messages[0].content.image_url` is missing",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}]),
                "in `data:` URLs only",
            ),
            (json!([{"role": "user", "content": "x", "images": ["a"]}]), "not valid base64"),
            (json!([{"role": "user", "content": "x", "images": "aaaa"}]), "not an array of texts in base64"),
            (
                json!([{"role": "assistant", "content": "x", "tool_calls": [{}]}]),
                "`messages[0].tool_calls[0].function` is missing",
            ),
        ] {
            let error = turns(value).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }

    #[test]
    fn what_is_no_tool_is_named() {
        for (value, part) in [
            (json!({}), "`tools` is an object, not an array"),
            (json!([{"type": "web_search"}]), "`tools[0].type` is `web_search`"),
            (json!([{"type": "function"}]), "`tools[0].function` is missing"),
            (json!([{"type": "function", "function": {}}]), "`tools[0].function.name` is missing"),
            (
                json!([{"type": "function", "function": {"name": "f", "parameters": 5}}]),
                "`tools[0].function.parameters` is a number, not a JSON schema",
            ),
        ] {
            let error = tools(value).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
        assert_eq!(tool_name(&tools(json!([{"function": {"name": "f"}}])).unwrap()[0]), "f");
    }
}
