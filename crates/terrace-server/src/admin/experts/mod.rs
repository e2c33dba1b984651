//! Place and uses of each expert: once, or as a stream.

pub mod board;
mod text;
mod values;

use self::values::Change;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream as streams;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Events per second, if a request does not say, and the limits of what it may say.
const RATE: f64 = 4.0;
const RATES: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// Time for which values are new enough for a stream: all streams together cause no more looks than
/// one.
const FRESH: Duration = Duration::from_millis(90);

/// `GET /v1/experts`: all experts, or with `since=CURSOR` those that changed after that.
///
/// # Errors
/// The cursor is no number, or the server is shutting down.
pub async fn experts(LoadedModel(ready): LoadedModel, uri: Uri) -> Result<Response, ApiError> {
    let asked = Asked::parse(uri.query().unwrap_or_default())?;
    let text = event(&ready, asked.since, Duration::ZERO)?.text;
    Ok(([(header::CONTENT_TYPE, "application/json")], text.as_bytes().to_vec()).into_response())
}

/// `GET /v1/experts/stream`: as server-sent events, `rate` per second. The first has all experts, or
/// those that changed after `since` or `Last-Event-ID`; each other one what changed after the one
/// before it.
///
/// # Errors
/// As [`experts`], or the rate is out of range.
pub async fn stream(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = Asked::parse(uri.query().unwrap_or_default())?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let mut timer = interval(Duration::from_secs_f64(1.0 / asked.rate));
    // A client that reads slowly gets fewer events, not the same ones later.
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watching = Watching { ready, timer, ending: app.ending(), since: asked.since.or(last) };
    let events = streams::unfold(watching, |mut watching| async {
        let event = watching.next().await?;
        Some((Ok::<_, Infallible>(event), watching))
    });
    let mut response = Sse::new(events).into_response();
    // Proxies must not buffer the events.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Changes after `since`, or everything. The values may be as old as `most`.
fn event(ready: &Ready, since: Option<u64>, most: Duration) -> Result<Change, ApiError> {
    let look = || ready.ask(|serving| (serving.uses().collect(), serving.experts()));
    let state = || ready.ask(|serving| (serving.status(), serving.mode()));
    ready.board.event(since, most, look, state)
}

/// A client that watches the experts.
struct Watching {
    ready: Arc<Ready>,
    timer: Interval,
    ending: watch::Receiver<bool>,
    since: Option<u64>,
}

impl Watching {
    /// Waits for the next event; `None` when the server ends.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            _ = self.timer.tick() => {}
            _ = self.ending.wait_for(|ending| *ending) => return None,
        }
        let event = event(&self.ready, self.since, FRESH).ok()?;
        self.since = Some(event.cursor);
        Some(Event::default().id(event.cursor.to_string()).data(event.text.as_ref()))
    }
}

/// The parameters of a request.
struct Asked {
    since: Option<u64>,
    rate: f64,
}

impl Asked {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut asked = Self { since: None, rate: RATE };
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            match name {
                "since" => {
                    let cursor = value.parse().map_err(|_| {
                        ApiError::field(
                            "since",
                            format!("`since` is `{value}`, not a cursor of an earlier response"),
                        )
                    });
                    asked.since = Some(cursor?);
                }
                "rate" => {
                    let rate = value.parse().ok().filter(|rate| RATES.contains(rate));
                    asked.rate = rate.ok_or_else(|| {
                        let (low, high) = (RATES.start(), RATES.end());
                        let range = format!("`rate` is `{value}`, but must be a number from {low} to {high}");
                        ApiError::field("rate", range)
                    })?;
                }
                _ => return Err(ApiError::unsupported(name, format!("unknown parameter `{name}`"))),
            }
        }
        Ok(asked)
    }
}
