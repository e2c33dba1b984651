//! A running server, as its operators reach it: with the same key that clients need.

mod args;
mod error;

pub use args::ServerArgs;
pub use error::RemoteError;

use crate::http::{agent, has_server};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;
use ureq::http::uri::Uri;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body, RequestBuilder};

/// Time until a connection must stand.
const CONNECT: Duration = Duration::from_secs(5);
/// Time within which each read must bring something: longer than an exchange of many copies takes.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// Time within which a stream or a short answer must bring something.
const SHORT: Duration = Duration::from_secs(10);
/// Largest answer that is read.
const MAX_ANSWER: u64 = 64 << 20;
/// Largest event of a stream: that of the largest model takes less than a megabyte.
const MOST_EVENT: u64 = 16 << 20;

/// A client of one server.
#[derive(Clone)]
pub struct Remote {
    patient: Agent,
    agent: Agent,
    /// Without a slash at its end.
    url: String,
    key: Option<String>,
}

impl Remote {
    /// Makes a client of the server at an address like `127.0.0.1:8080` or `https://box.lan`.
    ///
    /// # Errors
    /// [`RemoteError::NoUrl`].
    pub fn new(args: &ServerArgs) -> Result<Self, RemoteError> {
        let text = &args.server;
        let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = url.trim_end_matches('/').to_owned();
        let parsed: Option<Uri> = url.parse().ok();
        if !parsed.as_ref().is_some_and(has_server) {
            return Err(RemoteError::NoUrl(args.server.clone()));
        }
        let (patient, agent) = (agent(CONNECT, READ_TIMEOUT), agent(CONNECT, SHORT));
        Ok(Self { patient, agent, url, key: args.api_key.first().cloned() })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks for JSON.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn get(&self, path: &str) -> Result<Value, RemoteError> {
        self.json(path, self.ask(path)?)
    }

    /// Sends JSON, and waits for the answer.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn post(&self, path: &str, body: &str) -> Result<Value, RemoteError> {
        let request = self.patient.post(format!("{}{path}", self.url));
        let request = self.with_key(request).header("content-type", "application/json");
        let answer = request.send(body).map_err(|error| self.unreachable(error))?;
        self.json(path, answer)
    }

    /// Opens a stream of events.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn events(&self, path: &str) -> Result<Events, RemoteError> {
        let answer = self.ask(path)?;
        match answer.status() {
            StatusCode::OK => Ok(Events(BufReader::new(Box::new(answer.into_body().into_reader())))),
            _ => Err(self.json(path, answer).err().unwrap_or_else(|| self.other(path))),
        }
    }

    fn ask(&self, path: &str) -> Result<Response<Body>, RemoteError> {
        let request = self.with_key(self.agent.get(format!("{}{path}", self.url)));
        request.call().map_err(|error| self.unreachable(error))
    }

    fn with_key<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    fn json(&self, path: &str, answer: Response<Body>) -> Result<Value, RemoteError> {
        let status = answer.status();
        let mut text = Vec::new();
        let read = answer.into_body().into_reader().take(MAX_ANSWER).read_to_end(&mut text);
        read.map_err(|error| self.unreachable(error.into()))?;
        let value: Value = serde_json::from_slice(&text).map_err(|_| self.other(path))?;
        if status.is_success() {
            return Ok(value);
        }
        let message = value["error"]["message"].as_str().or(value["error"].as_str());
        let message = message.ok_or_else(|| self.other(path))?.to_owned();
        Err(match status {
            StatusCode::UNAUTHORIZED => RemoteError::Key { url: self.url.clone(), message },
            status => RemoteError::Refused { status: status.as_u16(), message },
        })
    }

    fn unreachable(&self, error: ureq::Error) -> RemoteError {
        let reason = match error {
            ureq::Error::Timeout(_) => "it does not answer".to_owned(),
            error => error.to_string(),
        };
        RemoteError::Unreachable { url: self.url.clone(), reason }
    }

    fn other(&self, path: &str) -> RemoteError {
        RemoteError::Other { url: self.url.clone(), path: path.to_owned() }
    }
}

/// Server-sent events as they come.
pub struct Events(BufReader<Box<dyn Read + Send>>);

impl Iterator for Events {
    type Item = Value;

    /// The data of the next event. `None` after the last one, and if the connection breaks.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.0).take(MOST_EVENT).read_until(b'\n', &mut line).ok()?;
            if read == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix(b"data:") {
                return serde_json::from_slice(data).ok();
            }
        }
    }
}
