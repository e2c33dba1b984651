//! Requests to a hub. The token goes to the hub alone, and Ctrl-C ends every wait.

use super::arriving::{Arriving, CONNECT, HttpPart, INTERRUPT_CHECK, Interrupted, NoAnswer};
use crate::http::{agent, has_server};
use std::ops::Range;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, InvalidHeaderValue, LOCATION, RANGE,
};
use ureq::http::uri::{PathAndQuery, Uri};
use ureq::http::{Method, Request, StatusCode};

/// Time without a byte after which a connection counts as broken.
pub const STALL: Duration = Duration::from_secs(60);
/// Attempts in a row that bring nothing new.
pub const ATTEMPTS: u32 = 4;
/// Wait before the second attempt; doubles with each further one.
pub const FIRST_WAIT: Duration = Duration::from_millis(200);
/// More redirections than these are a circle.
const MAX_REDIRECTIONS: usize = 10;

/// A client of one hub.
pub struct Http {
    agent: Agent,
    hub: Uri,
    token: Option<HeaderValue>,
    interrupted: fn() -> bool,
}

impl Http {
    /// Makes a client of the hub at `endpoint` that sends `token` to no other host. Its waits end
    /// when `interrupted` says so, and connections that bring nothing for `stall` break.
    ///
    /// # Errors
    /// The reason: an endpoint that is no URL of HTTP, a token that no header can carry.
    pub fn new(
        endpoint: &str,
        token: Option<&str>,
        stall: Duration,
        interrupted: fn() -> bool,
    ) -> Result<Self, String> {
        let hub: Uri = endpoint.parse().map_err(|e| format!("{e}"))?;
        if !has_server(&hub) {
            return Err("it is not an http:// or https:// URL".into());
        }
        let header = |token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
            value.set_sensitive(true);
            Ok(value)
        };
        let token = token.map(header).transpose();
        let token = token.map_err(|_: InvalidHeaderValue| "the token is not plain text")?;
        // Redirections are followed by hand: each step decides about the token.
        Ok(Self { agent: agent(CONNECT, stall), hub, token, interrupted })
    }

    /// Asks for headers alone. A redirection is an answer.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn head(&self, url: &Uri) -> Result<Answer, NoAnswer> {
        self.send(&Method::HEAD, url, None)
    }

    /// Asks for a body, or for `range` of it (the server may ignore that), wherever redirections
    /// lead.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn get(&self, url: &Uri, range: Option<&Range<u64>>) -> Result<Answer, NoAnswer> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTIONS {
            let answer = self.send(&Method::GET, &url, range)?;
            match redirection(&url, &answer) {
                Some(next) => url = next,
                None => return Ok(answer),
            }
        }
        Err(NoAnswer::Broken("too many redirects".into()))
    }

    fn send(&self, method: &Method, url: &Uri, range: Option<&Range<u64>>) -> Result<Answer, NoAnswer> {
        let mut request = Request::builder().method(method).uri(url).header(ACCEPT_ENCODING, "identity");
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(url)) {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(Range { start, end }) = range {
            request = request.header(RANGE, format!("bytes={start}-{}", end - 1));
        }
        let request = request.body(()).expect("its parts were parsed");
        let mut rest = Arriving::start(&self.agent, request, self.interrupted)?;
        match rest.next()? {
            Some(HttpPart::Head(head)) => Ok(Answer { status: head.status, headers: head.headers, rest }),
            _ => Err(NoAnswer::Broken("the connection closed without a response".into())),
        }
    }

    /// Asks again while the answer may be otherwise a little later, [`ATTEMPTS`] times at most.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn patiently(&self, ask: impl Fn() -> Result<Answer, NoAnswer>) -> Result<Answer, NoAnswer> {
        let mut wait = FIRST_WAIT;
        for _ in 1..ATTEMPTS {
            match ask() {
                Ok(answer) if answer.is_passing() => {}
                Err(NoAnswer::Broken(_)) => {}
                other => return other,
            }
            self.pause(wait)?;
            wait *= 2;
        }
        ask()
    }

    /// Returns true if a URL is the hub's own, by scheme, host and port.
    fn is_hub(&self, url: &Uri) -> bool {
        url.scheme() == self.hub.scheme() && url.authority() == self.hub.authority()
    }

    /// Waits.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn pause(&self, time: Duration) -> Result<(), Interrupted> {
        let end = Instant::now() + time;
        loop {
            self.look()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(INTERRUPT_CHECK));
        }
    }

    /// Looks whether Ctrl-C was pressed.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn look(&self) -> Result<(), Interrupted> {
        if (self.interrupted)() { Err(Interrupted) } else { Ok(()) }
    }
}

/// An answer of which the head has arrived.
pub struct Answer {
    /// Status of the response.
    pub status: StatusCode,
    /// The answer's headers.
    pub headers: HeaderMap,
    rest: Arriving,
}

impl Answer {
    /// The next bytes of the body; `None` means that it has ended.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, NoAnswer> {
        match self.rest.next()? {
            Some(HttpPart::Bytes(bytes)) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// [`NoAnswer`], also for a body of more than `most` bytes.
    pub fn whole(mut self, most: usize) -> Result<Vec<u8>, NoAnswer> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.next()? {
            whole.extend(bytes);
            if whole.len() > most {
                return Err(NoAnswer::Broken(format!("its response exceeds {most} bytes")));
            }
        }
        Ok(whole)
    }

    /// Returns true if the same request may be answered otherwise a little later.
    pub fn is_passing(&self) -> bool {
        matches!(self.status.as_u16(), 408 | 429 | 500..=599)
    }

    /// A header's text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Target of a redirection in the response to a request for `from`; `None` if none is understood.
pub fn redirection(from: &Uri, answer: &Answer) -> Option<Uri> {
    let to = answer.text(LOCATION.as_str()).filter(|_| answer.status.is_redirection())?;
    resolved(from, to)
}

/// Meaning of a `Location` in the response to a request for `from`.
///
/// A path must be one in everybody's eyes: `//host` and `/\host` are another host's name in some.
pub(super) fn resolved(from: &Uri, to: &str) -> Option<Uri> {
    let scheme = to.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if matches!(scheme.as_deref(), Some("http" | "https")) {
        return to.parse().ok();
    }
    if !to.starts_with('/') || to.starts_with("//") || to.contains('\\') {
        return None;
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(to.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}
