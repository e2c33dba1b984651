//! llama-server's endpoints that turn text into tokens, and tokens into text.

use crate::app::{LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::{Body, wrong};
use crate::request::{Client, off_thread, prompt};
use crate::response::json;
use axum::body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json as object};
use std::fmt::Write;
use std::io;
use std::sync::Arc;

/// Number of tokens that are written at once; the response to more is sent in parts.
const AT_ONCE: usize = 4096;

/// `POST /tokenize`: turns `{"content": TEXT}` into `{"tokens": [...]}`, with the text of each
/// token if `with_pieces` is set.
///
/// # Errors
/// There is no text.
pub async fn tokenize(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = body.fields()?;
        let content = fields.required_text("content")?;
        let add_special = fields.flag("add_special")?.unwrap_or(false);
        let parse_special = fields.flag("parse_special")?.unwrap_or(true);
        let with_pieces = fields.flag("with_pieces")?.unwrap_or(false);
        fields.finish()?;
        let client = Client::here();
        let tokens = ready
            .ask(|serving| serving.tokenize(&content, add_special, parse_special, &|| client.waits()))??;
        Ok(Written { ready, tokens, with_pieces, at: None }.respond())
    })
    .await
}

/// `POST /detokenize`: turns `{"tokens": [...]}` into `{"content": TEXT}`.
///
/// # Errors
/// There are no tokens.
pub async fn detokenize(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = body.fields()?;
        let tokens = match fields.required("tokens")? {
            Value::Array(values) => prompt::tokens("tokens", &values)?,
            other => return Err(wrong("tokens", &other, "an array of tokens")),
        };
        fields.finish()?;
        if let Some(wrong) = tokens.iter().find(|&&token| !ready.facts.has_token(token)) {
            let vocabulary = ready.facts.vocabulary;
            return Err(ApiError::field(
                "tokens",
                format!("{wrong} is not a token: the vocabulary has {vocabulary} tokens"),
            ));
        }
        let bytes = ready.ask(|serving| serving.detokenize(&tokens))??;
        Ok(json(&object!({"content": String::from_utf8_lossy(&bytes)})))
    })
    .await
}

/// A response with tokens that is written in parts, because a text of some megabytes has as many
/// tokens.
struct Written {
    ready: Arc<Ready>,
    tokens: Vec<i32>,
    /// True if the texts of the tokens are written too.
    with_pieces: bool,
    /// Number of tokens written. `None`: nothing is written yet, not even the beginning.
    at: Option<usize>,
}

impl Written {
    fn respond(mut self) -> Response {
        let content = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        if self.tokens.len() > AT_ONCE {
            return (content, body::Body::from_stream(stream::iter(self))).into_response();
        }
        match self.next() {
            Some(Ok(text)) => (content, text).into_response(),
            Some(Err(_)) | None => ApiError::stopping().into_response(),
        }
    }

    /// Appends a token.
    fn token(&self, token: i32, text: &mut String) -> io::Result<()> {
        if !self.with_pieces {
            let _ = write!(text, "{token}");
            return Ok(());
        }
        let bytes = self.ready.ask(|serving| serving.detokenize(&[token])).and_then(|bytes| Ok(bytes?));
        let bytes = bytes.map_err(|error| io::Error::other(error.message().to_owned()))?;
        // Bytes that are not whole characters are not text; llama-server returns them as an array.
        let piece = match std::str::from_utf8(&bytes) {
            Ok(text) => serde_json::to_string(text),
            Err(_) => serde_json::to_string(&bytes),
        };
        let _ = write!(text, r#"{{"id":{token},"piece":{}}}"#, piece.expect("plain data"));
        Ok(())
    }
}

impl Iterator for Written {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<io::Result<String>> {
        let (mut text, from) = match self.at {
            None => (String::from(r#"{"tokens":["#), 0),
            Some(at) if at < self.tokens.len() => (String::from(","), at),
            Some(_) => return None,
        };
        let to = self.tokens.len().min(from + AT_ONCE);
        for (index, &token) in self.tokens[from..to].iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            if let Err(error) = self.token(token, &mut text) {
                self.at = Some(self.tokens.len());
                return Some(Err(error));
            }
        }
        if to == self.tokens.len() {
            text.push_str("]}");
        }
        self.at = Some(to);
        Some(Ok(text))
    }
}
