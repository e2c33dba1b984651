//! The context.

use terrace_plan::KvChoice;

/// Tokens, how many at once, and what is kept of them.
#[derive(Clone, Copy, Debug)]
pub struct ContextOptions {
    /// Tokens in the context, of each [slot](crate::serving) where it has several; `None` means what the model was trained
    /// with, 4096 at most.
    pub tokens: Option<u32>,
    /// Types of keys and values. Anything but [`KvTypes::F16`](terrace_model::KvTypes::F16) is lossy.
    pub kv_type: KvChoice,
    /// Whether devices hold the cache of their layers, and compute attention.
    pub kv_offload: bool,
    /// Most prompt tokens per decode call.
    pub batch: u32,
    /// Most tokens per graph; `None` means 512, or 2,048 for models with experts where memory allows, since a graph of
    /// that many tokens uses nearly all experts, however many tokens it has.
    pub ubatch: Option<u32>,
    /// Tokens of a decode call whose logits are kept; generating needs the last one's only.
    pub outputs: u32,
    /// Sequences that the context holds, for tasks with several endings and [`serving`](crate::serving); everything else
    /// needs one.
    pub sequences: u32,
    /// Whether they share the context's tokens, as endings do. Otherwise each has [`ContextOptions::tokens`] of its own,
    /// as a server's slots do.
    pub unified: bool,
}

impl ContextOptions {
    /// Sequences with a context of their own.
    pub(crate) fn slots(&self) -> u32 {
        if self.unified { 1 } else { self.sequences.max(1) }
    }
}

impl Default for ContextOptions {
    fn default() -> Self {
        Self {
            tokens: None,
            kv_type: KvChoice::default(),
            kv_offload: true,
            batch: 2048,
            ubatch: None,
            outputs: 1,
            sequences: 1,
            unified: true,
        }
    }
}
