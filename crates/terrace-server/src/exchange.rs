//! The exchange with a client that is going on: its id, and what is noted of it on the way to the
//! response, for the headers and the line in the log.

use crate::response::random_id;
use axum::http::HeaderMap;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_engine::Answer;

/// The header with a request's id, in both directions.
pub const REQUEST_ID: &str = "x-request-id";
/// Maximum length of an id that a client may choose.
const ID: usize = 128;
/// Maximum number of ignored fields that are named.
const NAMED: usize = 20;
/// Maximum length of such a name.
const NAME: usize = 64;

tokio::task_local! {
    /// The exchange of this task.
    static OF_TASK: Arc<Exchange>;
}

thread_local! {
    /// The exchange that work on this thread is done for.
    static OF_THREAD: RefCell<Option<Arc<Exchange>>> = const { RefCell::new(None) };
}

/// A request and its response.
#[derive(Debug)]
pub struct Exchange {
    /// The request's id, of visible ASCII.
    pub id: String,
    /// True if unknown fields are errors.
    pub strict: bool,
    /// True if other requests come first.
    pub background: bool,
    notes: Mutex<Notes>,
}

/// Notes about an exchange.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Unknown fields that were ignored.
    pub ignored: Vec<String>,
    /// Sentences about fields whose value is another one than was sent.
    pub adjusted: Vec<String>,
    /// Fields that had no effect because they need an admin key.
    pub withheld: Vec<&'static str>,
    /// Keywords of schemas that answers need not follow.
    pub unenforced: Vec<String>,
    /// True if another process answers, which logs that itself.
    pub passed_on: bool,
    /// The model that answered.
    pub model: Option<String>,
    /// All answers, if there were any.
    pub answers: Option<Counts>,
}

/// Sums over the answers to a request, and the times of the first one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub tokens: usize,
    pub queued_ms: f64,
    pub ttft_ms: f64,
    /// Why the last one ended.
    pub stop: Option<terrace_engine::StopReason>,
}

impl Exchange {
    /// Begins an exchange with the id that the client chose, or with a new one.
    pub fn begin(headers: &HeaderMap, strict: bool) -> Arc<Self> {
        Self::begin_in(headers, strict, false)
    }

    /// As [`Exchange::begin`], for a request that others come before.
    pub fn begin_in(headers: &HeaderMap, strict: bool, background: bool) -> Arc<Self> {
        let chosen = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let usable = |id: &&str| (1..=ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        let id = chosen.filter(usable).map_or_else(|| random_id(""), ToOwned::to_owned);
        Arc::new(Self { id, strict, background, notes: Mutex::default() })
    }

    /// Runs a task of this exchange.
    pub async fn scope<T>(self: &Arc<Self>, task: impl Future<Output = T>) -> T {
        OF_TASK.scope(Arc::clone(self), task).await
    }

    /// The exchange that is going on here.
    pub fn here() -> Option<Arc<Self>> {
        OF_TASK.try_with(Arc::clone).ok().or_else(|| OF_THREAD.with_borrow(Clone::clone))
    }

    /// Does work on this thread for an exchange.
    pub fn work<T>(exchange: Option<Arc<Self>>, work: impl FnOnce() -> T) -> T {
        /// Puts back what was there, also after a panic.
        struct Before(Option<Arc<Exchange>>);
        impl Drop for Before {
            fn drop(&mut self) {
                OF_THREAD.replace(self.0.take());
            }
        }
        let _before = Before(OF_THREAD.replace(exchange));
        work()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes so far.
    pub fn noted(&self) -> Notes {
        self.notes().clone()
    }

    /// Notes that a field was ignored.
    pub fn ignored(&self, field: &str) {
        let mut notes = self.notes();
        if notes.ignored.len() < NAMED {
            notes.ignored.push(plain(field, NAME));
        }
    }

    /// Notes that answers need not follow a keyword of a schema.
    pub fn unenforced(&self, place: &str) {
        let mut notes = self.notes();
        if notes.unenforced.len() < NAMED {
            notes.unenforced.push(plain(place, 2 * NAME));
        }
    }

    /// Notes that a field has another value than was sent; the sentence is in ASCII.
    pub fn adjusted(&self, sentence: String) {
        self.notes().adjusted.push(sentence);
    }

    /// Notes that a field had no effect because it needs an admin key.
    pub fn withheld(&self, field: &'static str) {
        self.notes().withheld.push(field);
    }

    /// Notes which model answers.
    pub fn by(&self, model: &str) {
        self.notes().model = Some(model.to_owned());
    }

    /// Notes that another process answers.
    pub fn pass_on(&self) {
        self.notes().passed_on = true;
    }

    /// Notes an answer.
    pub fn answered(&self, answer: &Answer) {
        let mut notes = self.notes();
        let first =
            Counts { queued_ms: answer.queued_ms, ttft_ms: answer.timings.ttft_ms, ..Counts::default() };
        let counts = notes.answers.get_or_insert(first);
        counts.prompt_tokens += answer.prompt_tokens;
        counts.cached_tokens += answer.reused;
        counts.tokens += answer.tokens.len();
        counts.stop = Some(answer.stop);
    }
}

/// A client's text as visible ASCII.
fn plain(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(id: &str) -> String {
        Exchange::begin(&HeaderMap::from_iter([(REQUEST_ID.parse().unwrap(), id.parse().unwrap())]), false)
            .id
            .clone()
    }

    #[test]
    fn ids_of_clients_are_kept_if_they_are_plain() {
        assert_eq!(begin("abc-1"), "abc-1");
        for odd in ["", "a b", "\u{e4}", &"x".repeat(ID + 1)] {
            let made = begin(odd);
            assert!(made != odd && made.len() == 32, "{made}");
        }
        assert_ne!(
            Exchange::begin(&HeaderMap::new(), false).id,
            Exchange::begin(&HeaderMap::new(), false).id
        );
    }

    #[test]
    fn work_knows_whom_it_is_for_and_names_are_plain_and_few() {
        let exchange = Exchange::begin(&HeaderMap::new(), true);
        assert!(Exchange::here().is_none());
        Exchange::work(Some(Arc::clone(&exchange)), || {
            (0..100).for_each(|_| Exchange::here().unwrap().ignored("a\n\"\u{e4}"));
        });
        assert!(Exchange::here().is_none());
        let ignored = exchange.noted().ignored;
        assert_eq!((ignored.len(), ignored[0].as_str()), (NAMED, "a?\"?"));
    }
}
