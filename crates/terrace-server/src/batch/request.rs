//! A request of a batch: a line as OpenAI's clients write it, or just a body.

use super::input::RequestLine;
use serde_json::{Map, Value};

/// The endpoints that batches may ask.
const ENDPOINTS: [&str; 4] = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];
/// The endpoints of bodies that have one of these fields and no `url`.
const BY_FIELD: [(&str, &str); 3] =
    [("messages", ENDPOINTS[0]), ("prompt", ENDPOINTS[1]), ("input", ENDPOINTS[2])];

/// A request.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// The client's name for it.
    pub custom_id: String,
    /// One of [`ENDPOINTS`].
    pub url: &'static str,
    /// JSON.
    pub body: Vec<u8>,
}

/// Why a line is no request.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRequest {
    /// The client's name for it, if that can be read.
    pub custom_id: Option<String>,
    /// A code for programs, as OpenAI names it where it does.
    pub code: &'static str,
    pub message: String,
}

/// Returns true if batches may ask this endpoint.
pub fn is_endpoint(url: &str) -> bool {
    ENDPOINTS.contains(&url)
}

impl Request {
    /// Reads a line: `{"custom_id": ..., "method": "POST", "url": ..., "body": {...}}`, or the body itself, which may
    /// have a `custom_id`. A request without one is called `line-N`.
    ///
    /// # Errors
    /// It is not JSON, or not a request that batches may have.
    pub fn read(line: &RequestLine) -> Result<Self, NoRequest> {
        let refuse =
            |custom_id: Option<String>, code, message: String| NoRequest { custom_id, code, message };
        let Some(text) = &line.text else {
            return Err(refuse(None, "line_too_long", "the line is longer than the largest request".into()));
        };
        let fields: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|error| refuse(None, "invalid_json_line", format!("not a JSON object: {error}")))?;
        let (custom_id, url, body) = parts(fields, line.number)?;
        let refuse = |code, message: String| refuse(Some(custom_id.clone()), code, message);
        let Some(url) = ENDPOINTS.into_iter().find(|endpoint| *endpoint == url) else {
            let all = ENDPOINTS.join(", ");
            return Err(refuse("invalid_url", format!("`url` is {url}, but must be one of {all}")));
        };
        if body.get("stream").is_some_and(|stream| stream != false && !stream.is_null()) {
            return Err(refuse("invalid_request", "requests of a batch cannot be streamed".into()));
        }
        let body = serde_json::to_vec(&body).expect("plain data");
        Ok(Self { custom_id, url, body })
    }
}

/// The name, the endpoint and the body of a line's request.
fn parts(
    mut fields: Map<String, Value>,
    number: usize,
) -> Result<(String, String, Map<String, Value>), NoRequest> {
    let custom_id = match fields.remove("custom_id") {
        Some(Value::String(id)) => id,
        None | Some(Value::Null) => format!("line-{number}"),
        Some(other) => other.to_string(),
    };
    let refuse = |code, message: &str| {
        Err(NoRequest { custom_id: Some(custom_id.clone()), code, message: message.to_owned() })
    };
    if !fields.contains_key("body") {
        // The body itself.
        let Some((_, url)) = BY_FIELD.iter().find(|(field, _)| fields.contains_key(*field)) else {
            return refuse("missing_body", "the line has no `body`, `messages`, `prompt` or `input`");
        };
        let url = match fields.remove("url") {
            Some(Value::String(url)) => url,
            _ => (*url).to_owned(),
        };
        fields.remove("method");
        return Ok((custom_id, url, fields));
    }
    match fields.remove("method") {
        None => {}
        Some(Value::String(method)) if method.eq_ignore_ascii_case("POST") => {}
        Some(_) => return refuse("invalid_method", "`method` must be POST"),
    }
    let Some(Value::String(url)) = fields.remove("url") else {
        return refuse("missing_url", "`url` is missing");
    };
    let Some(Value::Object(body)) = fields.remove("body") else {
        return refuse("invalid_body", "`body` must be an object");
    };
    Ok((custom_id, url, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, &'static str, String), (Option<String>, &'static str)> {
        let line = RequestLine { text: Some(text.into()), number: 7, digest: String::new() };
        Request::read(&line)
            .map(|Request { custom_id, url, body }| (custom_id, url, String::from_utf8(body).unwrap()))
            .map_err(|refused| (refused.custom_id, refused.code))
    }

    #[test]
    fn requests_are_openais_lines_or_bodies() {
        let line =
            r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}"#;
        let (id, url, body) = read(line).unwrap();
        assert_eq!((&*id, url, &*body), ("a", "/v1/completions", r#"{"prompt":"x"}"#));
        let (id, url, body) = read(r#"{"prompt": "x", "max_tokens": 3}"#).unwrap();
        assert_eq!((&*id, url, &*body), ("line-7", "/v1/completions", r#"{"max_tokens":3,"prompt":"x"}"#));
        let (id, url, _) = read(r#"{"messages": [], "custom_id": "b"}"#).unwrap();
        assert_eq!((&*id, url), ("b", "/v1/chat/completions"));
        let (_, url, _) = read(r#"{"input": "x", "url": "/v1/responses"}"#).unwrap();
        assert_eq!(url, "/v1/responses");
    }

    #[test]
    fn what_is_no_request_is_said_with_its_name() {
        let a = || Some("a".to_owned());
        for (text, expected) in [
            ("nonsense", (None, "invalid_json_line")),
            ("[1]", (None, "invalid_json_line")),
            (r#"{"custom_id": "a"}"#, (a(), "missing_body")),
            (r#"{"custom_id": "a", "body": {}}"#, (a(), "missing_url")),
            (r#"{"custom_id": "a", "url": "/v1/models", "body": {}}"#, (a(), "invalid_url")),
            (r#"{"custom_id": "a", "url": "/v1/completions", "body": 3}"#, (a(), "invalid_body")),
            (
                r#"{"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}}"#,
                (a(), "invalid_method"),
            ),
            (r#"{"custom_id": "a", "prompt": "x", "stream": true}"#, (a(), "invalid_request")),
        ] {
            assert_eq!(read(text).unwrap_err(), expected, "{text}");
        }
    }
}
