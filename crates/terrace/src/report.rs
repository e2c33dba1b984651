//! The object that `run --json` prints and `bench` reads.

use serde::{Deserialize, Serialize};
use terrace_engine::{Engine, Generation, peak_rss};

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// What was generated; U+FFFD where it is no text.
    pub text: String,
    /// The same in tokens.
    pub tokens: Vec<i32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub stop: String,
    /// `full-resident`, `expert-streaming`, ... or `stock`.
    pub mode: String,
    /// What lives where.
    pub plan: serde_json::Value,
    /// How long it took.
    pub timings: TimingReport,
    /// What was read; none in stock runs and where nothing is managed.
    pub store: Option<StoreReport>,
    /// Most memory that the process had.
    pub peak_rss_bytes: u64,
}

/// Times of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimingReport {
    /// Until the model could be used, in milliseconds.
    pub load_ms: f64,
    /// Prompt tokens per second.
    pub prompt_tps: f64,
    /// Generated tokens per second.
    pub decode_tps: f64,
    /// From the prompt to the first token, in milliseconds.
    pub ttft_ms: f64,
}

/// Counters of the store over one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Bytes read from the model's files.
    pub bytes_read: u64,
    /// Read requests.
    pub requests: u64,
    /// Uses of weights that were there.
    pub hits: u64,
    /// Uses of weights that had to be read.
    pub misses: u64,
    /// Share of the uses that neither read nor waited.
    pub hit_rate: f64,
    /// 10^9 bytes per second while reading.
    pub read_gbps: f64,
    /// Time that computing waited for reading, in milliseconds.
    pub stall_ms: f64,
}

impl RunReport {
    /// Of a generation that just ended.
    pub fn new(engine: &Engine, generation: &Generation) -> Self {
        let plan = engine.plan();
        let stop = serde_json::to_value(generation.stop).ok();
        let timings = &generation.timings;
        Self {
            text: String::from_utf8_lossy(&generation.text).into_owned(),
            tokens: generation.tokens.clone(),
            prompt_tokens: generation.prompt_tokens,
            stop: stop.as_ref().and_then(|s| s.as_str()).unwrap_or_default().to_owned(),
            mode: plan.mode.clone(),
            plan: serde_json::to_value(plan).expect("a plan is plain data"),
            timings: TimingReport {
                load_ms: engine.load_ms(),
                prompt_tps: timings.prompt_tps,
                decode_tps: timings.decode_tps,
                ttft_ms: timings.ttft_ms,
            },
            store: engine.store_stats().map(|stats| StoreReport {
                bytes_read: stats.bytes_read.bytes(),
                requests: stats.requests,
                hits: stats.hits,
                misses: stats.misses,
                hit_rate: stats.hit_rate(),
                read_gbps: stats.read_gbps(),
                stall_ms: stats.stall.as_secs_f64() * 1e3,
            }),
            peak_rss_bytes: peak_rss().bytes(),
        }
    }
}
