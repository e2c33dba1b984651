//! What a caller can choose.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use terrace_plan::{Budget, Manage};
use terrace_store::{DirectChoice, IoChoice, PolicyKind};

/// Who runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The Terrace backend.
    Terrace,
    /// llama.cpp as it is, weights mapped from the file: what Terrace is compared with.
    Stock {
        /// Let it convert weights to its repacked layouts, as its own programs do by default.
        repack: bool,
    },
}

/// How to load and run a model.
#[derive(Clone, Debug)]
pub struct Options {
    /// The GGUF file, the first shard of a split model.
    pub model: PathBuf,
    /// Who runs it.
    pub mode: Mode,
    /// Which weights come from the store.
    pub manage: Manage,
    /// RAM for weights, resident ones and slots together.
    pub ram_budget: Budget,
    /// I/O engine.
    pub io: IoChoice,
    /// Past the page cache or through it.
    pub direct: DirectChoice,
    /// Which blocks go when the slots are full.
    pub cache_policy: PolicyKind,
    /// Where [`Engine::save_trace`](crate::Engine::save_trace) writes what the routers chose.
    pub record_trace: Option<PathBuf>,
    /// Tokens in the context; none: what the model was trained with, 4096 at most.
    pub ctx: Option<u32>,
    /// Most prompt tokens per decode call.
    pub batch: u32,
    /// Most tokens per graph.
    pub ubatch: u32,
    /// Compute threads; none: what the process may run on.
    pub threads: Option<u32>,
    /// Faults to inject into reads, for tests (`eio@100`).
    pub faults: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            model: PathBuf::new(),
            mode: Mode::Terrace,
            manage: Manage::Auto,
            ram_budget: Budget::Auto,
            io: IoChoice::Auto,
            direct: DirectChoice::Auto,
            cache_policy: PolicyKind::default(),
            record_trace: None,
            ctx: None,
            batch: 2048,
            ubatch: 512,
            threads: None,
            faults: None,
        }
    }
}

/// How tokens are chosen; llama.cpp's samplers, defaults and order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Temperature; 0 or less is greedy.
    pub temp: f32,
    /// Most likely tokens kept; 0 or less: all.
    pub top_k: i32,
    /// Cumulated probability kept; 1: all.
    pub top_p: f32,
    /// Least probability relative to the best token; 0: any.
    pub min_p: f32,
    /// Seed.
    pub seed: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        // RandomState is seeded by the system: the only random number that is needed here.
        let seed = RandomState::new().build_hasher().finish() as u32;
        Self { temp: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, seed }
    }
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Self {
        Self { temp: 0.0, seed: 0, ..Self::default() }
    }
}
