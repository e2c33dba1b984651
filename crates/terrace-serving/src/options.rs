//! Ways in which jobs share the engine.

use std::time::Duration;

/// Passes for the next tokens of several slots together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchSlots {
    /// Never.
    Off,
    /// Together if each token gets the bits that it has alone.
    #[default]
    Exact,
    /// Always. ggml rounds differently in a batch, so an answer may depend on what is computed beside
    /// it.
    On,
}

impl std::str::FromStr for BatchSlots {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "exact" => Ok(Self::Exact),
            // As a switch in configuration files and variables.
            "on" | "true" => Ok(Self::On),
            "off" | "false" => Ok(Self::Off),
            _ => Err("is none of exact, on, off"),
        }
    }
}

/// When prompts of several slots are evaluated in one pass. Each has the bits of a pass of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharePasses {
    Never,
    /// For prompts that wait for weights that are read from disk.
    #[default]
    WhereReadsDecide,
    /// Wherever they can be.
    Always,
}

/// Work in the order in which many jobs are done soonest, however long single ones take: all slots that generate
/// share a pass, prompts are evaluated before anything else, and slots are filled again several at a time where
/// reading decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lockstep {
    /// Most tokens of a prompt that are evaluated at once. Prompts that begin alike are evaluated once, as far as such
    /// parts are whole, so that each has the bits that it has alone. `None`: as many as a graph has.
    pub part: Option<usize>,
}

/// Ways in which jobs share the engine.
#[derive(Clone, Copy, Debug)]
pub struct ServingOptions {
    /// Number of jobs that are answered at the same time: at least one, and at most the number of
    /// sequences with a context of their own
    /// ([`ContextOptions::sequences`](terrace_engine::options::ContextOptions::sequences) without
    /// [`ContextOptions::unified`](terrace_engine::options::ContextOptions::unified)).
    pub slots: u32,
    /// Number of jobs that may wait while all slots are taken.
    pub queue: usize,
    /// Passes for the next tokens of several generating slots together. With a streamed
    /// model, experts that several slots need are then read once.
    pub batch_slots: BatchSlots,
    /// When the prompts of several slots are evaluated in one pass; never if `batch_slots` is off.
    pub share_passes: SharePasses,
    /// Longest wait of generating slots while part of a prompt is evaluated: parts are made so
    /// small that they take about that long. `None`: each part is a whole graph. ggml rounds
    /// differently in smaller graphs, so an answer may depend on what else was generated while its
    /// prompt was evaluated. Prompts that are evaluated while nothing is generated are not affected.
    pub prefill_latency: Option<Duration>,
    /// For batches of jobs that no one waits for one by one. `None`: first tokens come early.
    pub lockstep: Option<Lockstep>,
}

impl Default for ServingOptions {
    /// One job at a time, and none waits.
    fn default() -> Self {
        Self {
            slots: 1,
            queue: 0,
            batch_slots: BatchSlots::default(),
            share_passes: SharePasses::default(),
            prefill_latency: None,
            lockstep: None,
        }
    }
}
