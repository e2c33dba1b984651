//! Progress of a batch.

use super::journal::Journal;
use crate::app::Ready;
use std::time::{Duration, Instant};
use terrace_serving::ServingStatus;

/// Progress and speed of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Number of requests.
    pub requests: usize,
    /// Requests with an answer, and how many of the answers are failures.
    pub done: usize,
    pub failed: usize,
    /// Requests that were answered before this run.
    pub before: usize,
    /// Requests that are being answered.
    pub running: usize,
    /// Tokens that this run has generated, those of running answers included.
    pub tokens: u64,
    /// Tokens of running answers.
    pub unfinished: u64,
    /// Tokens of prompts that were evaluated, and that others had evaluated.
    pub prompt_tokens: u64,
    pub reused_tokens: u64,
    /// Seconds of generating, and of evaluating prompts.
    pub decode_seconds: f64,
    pub prefill_seconds: f64,
    /// Graphs that were computed.
    pub passes: u64,
    /// Bytes of weights that were read from disk; `None` if none are.
    pub read: Option<u64>,
    /// Time of this run.
    pub time: Duration,
}

impl Progress {
    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        self.tokens as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Bytes read for a thousand tokens; `None` if nothing is read or generated.
    pub fn read_per_thousand(&self) -> Option<f64> {
        let read = self.read.filter(|_| self.tokens > 0)?;
        Some(read as f64 * 1e3 / self.tokens as f64)
    }

    /// Time until all are answered, if those to come are as long as those that have come; `None` before the first.
    pub fn left(&self) -> Option<Duration> {
        let answered = (self.done - self.before) as f64;
        let finished = self.tokens.saturating_sub(self.unfinished) as f64;
        let (to_come, seconds) = ((self.requests - self.done) as f64, self.time.as_secs_f64());
        if answered < 1.0 {
            return None;
        }
        // Embeddings have no tokens of their own.
        let left = if finished < 1.0 {
            to_come / answered * seconds
        } else {
            let tokens = (to_come * finished / answered - self.unfinished as f64).max(0.0);
            tokens / self.rate()
        };
        Duration::try_from_secs_f64(left).ok()
    }
}

/// State at the beginning of a run.
pub struct Began {
    at: Instant,
    before: usize,
    status: ServingStatus,
}

impl Began {
    /// Begins a run that goes on with a journal.
    pub fn now(ready: &Ready, journal: &Journal) -> Self {
        Self { at: Instant::now(), before: journal.done(), status: ready.status().unwrap_or_default() }
    }

    /// Progress of the run.
    pub fn progress(&self, ready: &Ready, journal: &Journal) -> Progress {
        let status = ready.status().unwrap_or_else(|_| self.status.clone());
        let (now, then) = (status.totals, self.status.totals);
        let read = |status: &ServingStatus| status.store.map(|store| store.bytes_read.bytes());
        Progress {
            requests: journal.requests(),
            done: journal.done(),
            failed: journal.failed(),
            before: self.before,
            running: status.slots.iter().filter(|slot| slot.prompt > 0).count(),
            tokens: now.generated_tokens - then.generated_tokens,
            unfinished: status.slots.iter().map(|slot| slot.generated as u64).sum(),
            prompt_tokens: now.prompt_tokens - then.prompt_tokens,
            reused_tokens: now.reused_tokens - then.reused_tokens,
            decode_seconds: now.decode_seconds - then.decode_seconds,
            prefill_seconds: now.prefill_seconds - then.prefill_seconds,
            passes: now.passes - then.passes,
            read: read(&status).map(|read_now| read_now.saturating_sub(read(&self.status).unwrap_or(0))),
            time: self.at.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_follows_from_the_length_of_answers() {
        let progress = Progress {
            requests: 100,
            done: 30,
            before: 20,
            tokens: 1000 + 500,
            unfinished: 500,
            read: Some(3_000_000_000),
            time: Duration::from_secs(15),
            ..Progress::default()
        };
        // 70 answers of 100 tokens, of which 500 tokens are there, at 100 a second.
        assert_eq!(progress.left(), Some(Duration::from_secs(65)));
        assert_eq!(progress.read_per_thousand(), Some(2e9));
        assert_eq!(Progress { done: 20, ..progress }.left(), None);
        let embeds = Progress { tokens: 0, unfinished: 0, ..progress };
        assert_eq!(embeds.left(), Some(Duration::from_secs(105)));
        assert_eq!(embeds.read_per_thousand(), None);
    }
}
