//! JSON bodies, read field by field so that an error can name the field.

use super::allowed::{Allowed, Bodies};
use super::inert::{Known, known};
use super::{coding, off_thread};
use crate::app::App;
use crate::error::ApiError;
use crate::exchange::Exchange;
use crate::nearest::nearest;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

/// The complete body of a request.
pub struct Body {
    bytes: Vec<u8>,
    allowed: Allowed,
    /// Its share of the memory for bodies, held while the request is read.
    _share: Option<OwnedSemaphorePermit>,
}

impl Body {
    /// Reads the fields.
    ///
    /// # Errors
    /// The body is not a JSON object, or has more values than a request can need.
    pub fn fields(&self) -> Result<Fields, ApiError> {
        self.allowed.check(&self.bytes)?;
        Fields::parse(&self.bytes)
    }

    /// Reads the values of a list.
    ///
    /// # Errors
    /// The body is not a JSON array, or has more values than a request can need.
    pub fn list(&self) -> Result<Vec<Value>, ApiError> {
        self.allowed.check(&self.bytes)?;
        let value = serde_json::from_slice(&self.bytes)
            .map_err(|error| ApiError::request(format!("the request body is not JSON: {error}")))?;
        match value {
            Value::Array(values) => Ok(values),
            other => {
                Err(ApiError::request(format!("the request body is {}, not a JSON array", kind(&other))))
            }
        }
    }
}

impl FromRequest<Arc<App>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let allowed = app.ready()?.allowed;
        let (bytes, share) = read(request, app, allowed.bytes).await?;
        Ok(Self { bytes, allowed, _share: share })
    }
}

/// Reads a body of at most `most` bytes. Returns it with its share of the memory for bodies.
///
/// # Errors
/// It is larger or not complete in time, its framing is wrong, or there is no memory for it.
pub async fn read(
    request: Request,
    app: &App,
    most: usize,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), ApiError> {
    let packed = coding::of(request.headers())?;
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.parse().ok());
    let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    // A client that announces too much is refused before its body is read.
    if length.is_some_and(|length| length > most) {
        return Err(ApiError::too_large(most));
    }
    let mut incoming = Incoming {
        body: request.into_body(),
        patience: app.limits.body,
        until: Instant::now() + app.limits.body,
        share: None,
    };
    if packed || length.is_some_and(Bodies::share_is_needed) {
        // How large it becomes is not known before.
        incoming.wait(&app.bodies, if packed { most } else { length.unwrap_or_default() }).await?;
    }
    let mut bytes = Vec::with_capacity(length.unwrap_or_default());
    while let Some(part) = incoming.next().await? {
        let length = bytes.len() + part.len();
        if length > most {
            return Err(ApiError::too_large(most));
        }
        // A body of unknown length may be a small one until it has become a large one.
        if incoming.share.is_none() && Bodies::share_is_needed(length) {
            incoming.wait(&app.bodies, most).await?;
        }
        bytes.extend_from_slice(&part);
    }
    if packed {
        bytes = off_thread(move || coding::unpacked(&bytes, most)).await?;
    }
    Ok((bytes, incoming.share))
}

/// A body that is being read.
struct Incoming {
    body: axum::body::Body,
    /// Time limit for waiting for memory, and for the rest of the body after that.
    patience: Duration,
    /// When the body has to be complete.
    until: Instant,
    share: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    /// Waits for the memory of a body of this many bytes.
    ///
    /// # Errors
    /// Other bodies use it for too long.
    async fn wait(&mut self, bodies: &Bodies, bytes: usize) -> Result<(), ApiError> {
        let share = timeout(self.patience, bodies.share(bytes)).await;
        self.share = Some(share.map_err(|_| ApiError::busy())?);
        self.until = Instant::now() + self.patience;
        Ok(())
    }

    /// The next part. `None` after the last one.
    ///
    /// # Errors
    /// The body is not complete in time, or its framing is wrong.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = timeout_at(self.until, self.body.frame()).await.map_err(|_| ApiError::slow_body())?;
            let Some(frame) = frame else { return Ok(None) };
            let frame =
                frame.map_err(|error| ApiError::request(format!("cannot read the request body: {error}")))?;
            // What is not data are trailers.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// The fields of a JSON object. A handler takes the fields that it knows, and ends with
/// [`Fields::finish`].
pub struct Fields {
    map: Map<String, Value>,
    /// Path of the object in the body, with a dot at its end.
    path: String,
    asked: Vec<&'static str>,
}

impl Fields {
    /// Reads the fields of a body.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::request(format!("the request body is not JSON: {error}")))?;
        match value {
            Value::Object(map) => Ok(Self { map, path: String::new(), asked: Vec::new() }),
            other => {
                Err(ApiError::request(format!("the request body is {}, not a JSON object", kind(&other))))
            }
        }
    }

    /// Reads the fields of an object within a body.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn within(path: &str, value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, path: format!("{path}."), asked: Vec::new() }),
            other => Err(wrong(path, &other, "an object")),
        }
    }

    /// Takes a field as it is; null means that it is missing.
    pub fn take(&mut self, name: &'static str) -> Option<Value> {
        self.asked.push(name);
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field that is needed.
    ///
    /// # Errors
    /// It is missing.
    pub fn required(&mut self, name: &'static str) -> Result<Value, ApiError> {
        self.take(name).ok_or_else(|| ApiError::missing(&self.place(name)))
    }

    /// Returns true if a field is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns true if a field is there and null.
    pub fn is_null(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(Value::is_null)
    }

    /// Path of a field in the body.
    pub fn place(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// Takes a string.
    ///
    /// # Errors
    /// The field has another type.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, ApiError> {
        self.take(name).map_or(Ok(None), |value| match value {
            Value::String(text) => Ok(Some(text)),
            other => Err(wrong(&self.place(name), &other, "a string")),
        })
    }

    /// Takes a string that is needed.
    ///
    /// # Errors
    /// It is missing, or has another type.
    pub fn required_text(&mut self, name: &'static str) -> Result<String, ApiError> {
        self.text(name)?.ok_or_else(|| ApiError::missing(&self.place(name)))
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// The field has another type.
    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, ApiError> {
        self.take(name).map_or(Ok(None), |value| match value {
            Value::Bool(flag) => Ok(Some(flag)),
            other => Err(wrong(&self.place(name), &other, "a boolean")),
        })
    }

    /// Takes a number.
    ///
    /// # Errors
    /// The field has another type, or is out of range.
    pub fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| wrong(&self.place(name), &value, "a number"))?;
        if !range.contains(&number) {
            return Err(out_of(&self.place(name), &value, range.start(), range.end()));
        }
        Ok(Some(number as f32))
    }

    /// Takes a whole number.
    ///
    /// # Errors
    /// The field has another type, or is out of range.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        // Some clients write all numbers as floats.
        let whole = value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| n as i64);
        match value.as_i64().or(whole) {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            Some(_) => Err(out_of(&self.place(name), &value, range.start(), range.end())),
            None => Err(wrong(&self.place(name), &value, "a whole number")),
        }
    }

    /// Ends reading. Fields that were not taken are ignored if they are harmless; unknown ones are
    /// ignored, and noted, unless the server is strict.
    ///
    /// # Errors
    /// A remaining field is unknown, or would change the answer if it were supported.
    pub fn finish(self) -> Result<(), ApiError> {
        for (name, value) in &self.map {
            if value.is_null() {
                continue;
            }
            let place = self.place(name);
            match known(name) {
                Some(Known::Harmless) => {}
                Some(Known::Neutral(neutral)) if neutral(value) => {}
                Some(Known::Neutral(_)) => {
                    return Err(unsupported(&place, value));
                }
                None => {
                    if let Some(exchange) = Exchange::here().filter(|exchange| !exchange.strict) {
                        exchange.ignored(&place);
                        continue;
                    }
                    let near = nearest(name, self.asked.iter().copied());
                    return Err(ApiError::unsupported(&place, format!("unknown field `{place}`{near}")));
                }
            }
        }
        Ok(())
    }
}

/// The error for a field of the wrong type.
pub fn wrong(place: &str, value: &Value, wanted: &str) -> ApiError {
    ApiError::field(place, format!("`{place}` is {}, not {wanted}", kind(value)))
}

/// The error for a field that would change the answer if it were supported.
fn unsupported(place: &str, value: &Value) -> ApiError {
    let message = match value {
        // Another value would do.
        Value::Bool(_) | Value::Number(_) => {
            format!("`{place}` cannot be {value} on this server: leave it out")
        }
        _ => format!("this server does not support `{place}`: leave it out"),
    };
    ApiError::unsupported(place, message)
}

fn out_of<T: std::fmt::Display>(place: &str, value: &Value, low: T, high: T) -> ApiError {
    ApiError::field(place, format!("`{place}` is {value}, but must be from {low} to {high}"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn errors_name_the_field_and_what_is_wrong() {
        let error = fields(r#"{"temperature": "hot"}"#).number("temperature", 0.0..=2.0).unwrap_err();
        assert_eq!(error.body()["error"]["param"], "temperature");
        assert_eq!(error.message(), "`temperature` is a string, not a number");
        let error = fields(r#"{"top_p": 1.5}"#).number("top_p", 0.0..=1.0).unwrap_err();
        assert_eq!(error.message(), "`top_p` is 1.5, but must be from 0 to 1");
        let mut options = Fields::within("options", serde_json::json!({"seed": 1.5})).unwrap();
        let error = options.integer("seed", -1..=10).unwrap_err();
        assert_eq!(error.message(), "`options.seed` is a number, not a whole number");
    }

    #[test]
    fn null_is_as_good_as_none_and_floats_may_be_whole() {
        let mut all = fields(r#"{"a": null, "b": 3.0, "stop": null}"#);
        assert_eq!(all.flag("a").unwrap(), None);
        assert_eq!(all.integer("b", 0..=5).unwrap(), Some(3));
        all.finish().unwrap();
    }

    #[test]
    fn what_would_change_the_answer_is_refused() {
        for (text, refused) in [
            (r#"{"user": "me", "suffix": "", "n": 1, "tools": []}"#, None),
            (r#"{"suffix": "x"}"#, Some("this server does not support `suffix`: leave it out")),
            (
                r#"{"tfs": 1, "top_a": 0, "guidance_scale": 1.0, "negative_prompt": "", "do_sample": true, "skew": 0, "smoothing_curve": 1}"#,
                None,
            ),
            (r#"{"tfs": 0.9}"#, Some("`tfs` cannot be 0.9 on this server: leave it out")),
            (r#"{"n": 2}"#, Some("`n` cannot be 2 on this server: leave it out")),
            (r#"{"temprature": 0}"#, Some("unknown field `temprature`; did you mean `temperature`?")),
        ] {
            let mut all = fields(text);
            all.number("temperature", 0.0..=2.0).unwrap();
            let error = all.finish().err();
            assert_eq!(error.as_ref().map(ApiError::message), refused, "{text}");
        }
    }

    #[test]
    fn only_a_strict_server_refuses_what_it_does_not_know() {
        let ignored = |strict, text: &str| {
            let exchange = Exchange::begin(&axum::http::HeaderMap::new(), strict);
            let all = fields(text);
            let ended = Exchange::work(Some(Arc::clone(&exchange)), || all.finish());
            ended.map(|()| exchange.noted().ignored).map_err(|error| error.message().to_owned())
        };
        let text = r#"{"x": 1, "user": "me", "xy": [], "null": null}"#;
        assert_eq!(ignored(false, text).unwrap(), ["x", "xy"]);
        assert_eq!(ignored(true, text).unwrap_err(), "unknown field `x`");
        // What would change the answer is refused all the same.
        assert!(ignored(false, r#"{"n": 2}"#).unwrap_err().contains("`n` cannot be 2"));
    }

    #[test]
    fn hostile_bodies_are_errors() {
        let deep = "[".repeat(100_000);
        let nested = format!("{{\"a\":{}", "{\"a\":".repeat(5_000));
        let bodies: [&[u8]; 8] = [
            b"",
            b"nonsense",
            b"[1]",
            b"\"x\"",
            b"{\"a\": \"\xff\"}",
            b"{\"a\": 1e999}",
            deep.as_bytes(),
            nested.as_bytes(),
        ];
        for body in bodies {
            assert!(Fields::parse(body).is_err());
        }
    }
}
