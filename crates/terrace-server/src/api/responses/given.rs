//! Fields of a request, and those that the response repeats.

use super::tools::{Names, Tools, choose};
use super::turns;
use crate::app::unix_seconds;
use crate::error::ApiError;
use crate::request::answer_settings::AnswerSettings;
use crate::request::body::{Fields, wrong};
use crate::request::chat::Chat;
use crate::request::constraint::{Constraint, schema_text};
use crate::response::random_id;
use serde_json::{Value, json};

/// Fields that refer to what earlier requests left, and what to do instead.
const NOT_KEPT: [(&str, &str); 3] = [
    ("previous_response_id", "this server keeps no responses: send the earlier items in `input`"),
    ("conversation", "this server keeps no conversations: send the items in `input`"),
    ("prompt", "this server keeps no prompts: send `instructions` and `input`"),
];

/// The response before there is anything in it, without what [`chat`] adds.
///
/// # Errors
/// A field is not valid, or refers to what is not kept.
pub fn object(fields: &mut Fields, model: &str, wanted: &AnswerSettings) -> Result<Value, ApiError> {
    let metadata = fields.take("metadata").unwrap_or_else(|| json!({}));
    if !metadata.is_object() {
        return Err(wrong("metadata", &metadata, "an object"));
    }
    let truncation = fields.text("truncation")?.unwrap_or_else(|| "disabled".into());
    // A prompt that is too long is refused either way.
    if !["auto", "disabled"].contains(&truncation.as_str()) {
        let message = format!("`truncation` is `{truncation}`, but must be auto or disabled");
        return Err(ApiError::field("truncation", message));
    }
    fields.flag("store")?;
    let mut object = json!({
        "id": random_id("resp_"),
        "object": "response",
        "created_at": unix_seconds(),
        "completed_at": null,
        "status": "in_progress",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "max_output_tokens": wanted.n_max,
        "metadata": metadata,
        "model": model,
        "output": [],
        "previous_response_id": null,
        "store": false,
        "temperature": wanted.sampling.temp,
        "top_logprobs": wanted.probs.unwrap_or(0),
        "top_p": wanted.sampling.top_p,
        "truncation": truncation,
        "usage": null,
    });
    // Calls of tools of OpenAI's, of which there are none.
    object["max_tool_calls"] = fields.integer("max_tool_calls", 1..=i64::from(u32::MAX))?.into();
    for name in ["prompt_cache_key", "safety_identifier", "user"] {
        object[name] = fields.text(name)?.into();
    }
    fields.text("service_tier")?;
    object["service_tier"] = "default".into();
    Ok(object)
}

/// The conversation, with its tools and what they are called. What the response repeats is added to
/// `object`.
///
/// # Errors
/// There is no input, or a field is not valid.
pub fn chat(fields: &mut Fields, object: &mut Value) -> Result<(Chat, Names), ApiError> {
    for (name, instead) in NOT_KEPT {
        if fields.take(name).is_some() {
            return Err(ApiError::unsupported(name, format!("`{name}` is not supported: {instead}")));
        }
    }
    let instructions = fields.text("instructions")?;
    object["instructions"] = instructions.as_deref().into();
    let input = fields.required("input")?;
    let mut chat = Chat::of(turns::turns(instructions, input)?);
    let tools = fields.take("tools").map_or_else(|| Ok(Tools::default()), Tools::read)?;
    chat.conversation.tools = tools.functions;
    object["tools"] = tools.given.into();
    let choice = fields.take("tool_choice").unwrap_or_else(|| "auto".into());
    object["tool_choice"] = choice.clone();
    choose(&mut chat, choice)?;
    let parallel = fields.flag("parallel_tool_calls")?;
    chat.conversation.parallel_tool_calls = parallel.unwrap_or(chat.conversation.parallel_tool_calls);
    object["parallel_tool_calls"] = chat.conversation.parallel_tool_calls.into();
    let (schema, text) = format(fields)?;
    object["text"] = text;
    let grammar = fields.text("grammar")?.unwrap_or_default();
    if !grammar.is_empty() && !schema.is_empty() {
        return Err(ApiError::request("a request takes one of `grammar` and `text.format`"));
    }
    chat.constrain(Constraint { grammar, schema })?;
    chat.think(fields)?;
    object["reasoning"] = reasoning(fields, &mut chat)?;
    Ok((chat, tools.names))
}

/// Parts that the response has besides the usual ones.
///
/// # Errors
/// It is not a list of names.
pub fn include(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    match fields.take("include") {
        None => Ok(Vec::new()),
        Some(Value::Array(names)) => names
            .into_iter()
            .map(|name| match name {
                Value::String(name) => Ok(name),
                other => Err(wrong("include", &other, "an array of names")),
            })
            .collect(),
        Some(other) => Err(wrong("include", &other, "an array of names")),
    }
}

/// The schema of the answer, and `text` as the response repeats it.
fn format(fields: &mut Fields) -> Result<(String, Value), ApiError> {
    const PLACE: &str = "text.format";
    let plain = || json!({"type": "text"});
    let Some(text) = fields.take("text") else { return Ok((String::new(), json!({"format": plain()}))) };
    let mut text = Fields::within("text", text)?;
    let given = text.take("format").unwrap_or_else(plain);
    let mut repeated = json!({"format": given});
    // How much a model says is not the server's to decide.
    if let Some(verbosity) = text.text("verbosity")? {
        repeated["verbosity"] = verbosity.into();
    }
    text.finish()?;
    let mut format = Fields::within(PLACE, given)?;
    let schema = match format.text("type")?.as_deref() {
        Some("text") | None => String::new(),
        Some("json_object") => json!({"type": "object"}).to_string(),
        Some("json_schema") => {
            let place = format.place("schema");
            let schema = format.required("schema")?;
            // Answers always follow it exactly.
            for ignored in ["name", "description", "strict"] {
                format.take(ignored);
            }
            schema_text(&place, schema)?
        }
        Some(other) => {
            let message =
                format!("`{PLACE}.type` is `{other}`, but must be text, json_object or json_schema");
            return Err(ApiError::unsupported(PLACE, message));
        }
    };
    format.finish()?;
    Ok((schema, repeated))
}

/// Reads how the model is to think. Thoughts are given as they are, so that they need no summary.
fn reasoning(fields: &mut Fields, chat: &mut Chat) -> Result<Value, ApiError> {
    let mut repeated = json!({"effort": null, "summary": null});
    let Some(reasoning) = fields.take("reasoning") else { return Ok(repeated) };
    let mut reasoning = Fields::within("reasoning", reasoning)?;
    if let Some(effort) = reasoning.text("effort")? {
        chat.try_hard(&effort);
        repeated["effort"] = effort.into();
    }
    for ignored in ["summary", "generate_summary", "context", "mode"] {
        reasoning.take(ignored);
    }
    reasoning.finish()?;
    Ok(repeated)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<(Chat, Value), ApiError> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        let mut object = json!({});
        let (chat, _) = chat(&mut fields, &mut object)?;
        fields.finish()?;
        Ok((chat, object))
    }

    #[test]
    fn the_response_repeats_what_the_request_says() {
        let schema = json!({"type": "object"});
        let format = json!({"type": "json_schema", "name": "x", "strict": true, "schema": schema});
        let (chat, object) = read(&json!({
            "model": "any",
            "input": "Hi",
            "instructions": "be brief",
            "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
            "tool_choice": "none",
            "parallel_tool_calls": false,
            "text": {"format": format, "verbosity": "low"},
            "reasoning": {"effort": "none", "summary": "auto"},
        }))
        .unwrap();
        assert_eq!(chat.conversation.messages.len(), 2);
        assert_eq!(chat.conversation.json_schema, schema.to_string());
        assert!(chat.thinks == Some(false) && !chat.conversation.parallel_tool_calls);
        assert_eq!(object["tools"], json!([{"type": "function", "name": "f"}]));
        assert_eq!(object["text"], json!({"format": format, "verbosity": "low"}));
        assert_eq!(object["reasoning"], json!({"effort": "none", "summary": null}));
        assert_eq!((&object["tool_choice"], &object["instructions"]), (&json!("none"), &json!("be brief")));
    }

    #[test]
    fn what_is_not_kept_or_not_valid_is_named() {
        for (more, part) in [
            (json!({"previous_response_id": "resp_1"}), "keeps no responses: send the earlier items"),
            (json!({"conversation": "conv_1"}), "keeps no conversations"),
            (json!({"prompt": {"id": "pmpt_1"}}), "keeps no prompts"),
            (json!({"background": true}), "`background` cannot be true"),
            (json!({"input": null}), "`input` is missing"),
            (json!({"text": {"format": {"type": "xml"}}}), "`text.format.type` is `xml`"),
            (json!({"text": {"format": {"type": "json_schema"}}}), "`text.format.schema` is missing"),
            (json!({"tool_choice": "required"}), "there are no `tools`"),
            (json!({"reasoning": {"effrt": "low"}}), "unknown field `reasoning.effrt`"),
        ] {
            let mut body = json!({"input": "Hi"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let Err(error) = read(&body) else { panic!("{part}") };
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}
