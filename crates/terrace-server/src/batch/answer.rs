//! A line of a batch's output, as OpenAI's clients read it.

use super::request::NoRequest;
use crate::response::random_id;
use serde::Serialize;
use serde_json::Value;

/// A response of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Responded {
    pub status_code: u16,
    pub request_id: String,
    pub body: Value,
}

/// An answer to a line.
#[derive(Debug, Serialize)]
pub struct Answer {
    id: String,
    custom_id: Option<String>,
    response: Option<Responded>,
    error: Option<Failure>,
}

/// Why there is no response.
#[derive(Debug, Serialize)]
struct Failure {
    code: &'static str,
    message: String,
}

impl Answer {
    /// The answer that an endpoint has given.
    pub fn of(custom_id: String, response: Responded) -> Self {
        Self { id: id(), custom_id: Some(custom_id), response: Some(response), error: None }
    }

    /// The answer to a line that is no request.
    pub fn refused(NoRequest { custom_id, code, message }: NoRequest) -> Self {
        Self { id: id(), custom_id, response: None, error: Some(Failure { code, message }) }
    }

    /// Returns true if it is not what was asked for.
    pub fn has_failed(&self) -> bool {
        is_failure(self.response.as_ref().map(|response| response.status_code))
    }

    /// JSON in one line.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

/// Returns true if an answer with this status, or without a response, is not what was asked for.
pub fn is_failure(status: Option<u16>) -> bool {
    status != Some(200)
}

fn id() -> String {
    random_id("batch_req_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_openais() {
        let response = Responded { status_code: 200, request_id: "r".into(), body: json!({"a": 1}) };
        let answer = Answer::of("x".into(), response);
        assert!(!answer.has_failed());
        let line = answer.to_line();
        assert!(line.starts_with("{\"id\":\"batch_req_"), "{line}");
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["custom_id"], "x");
        assert_eq!(line["response"], json!({"status_code": 200, "request_id": "r", "body": {"a": 1}}));
        assert_eq!(line["error"], Value::Null);
        let refused = NoRequest { custom_id: None, code: "missing_body", message: "m".into() };
        let refused = Answer::refused(refused);
        assert!(refused.has_failed());
        let line: Value = serde_json::from_str(&refused.to_line()).unwrap();
        assert_eq!((&line["response"], &line["custom_id"]), (&Value::Null, &Value::Null));
        assert_eq!(line["error"], json!({"code": "missing_body", "message": "m"}));
    }
}
