//! The context.

use terrace_plan::KvChoice;

/// The size of the context, of batches and graphs, and the types of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct ContextOptions {
    /// Tokens in the context; per [slot](crate::serving), if there are several. `None` means the
    /// length that the model was trained with, but at most 4096.
    pub tokens: Option<u32>,
    /// Types of keys and values. Anything but [`KvTypes::F16`](terrace_model::KvTypes::F16) is
    /// lossy.
    pub kv_type: KvChoice,
    /// Whether devices hold the KV cache of their layers and compute attention.
    pub kv_offload: bool,
    /// Most prompt tokens per decode call.
    pub batch: u32,
    /// Most tokens per graph; `None` means 512, or 2,048 for models with experts where memory
    /// allows: a graph of 512 tokens already uses nearly all experts, so larger ones read them less
    /// often.
    pub ubatch: Option<u32>,
    /// Tokens of a decode call whose logits are kept; generating needs only the last one's.
    pub outputs: u32,
    /// Number of sequences in the context. Tasks with several endings and
    /// [`serving`](crate::serving) use more than one.
    pub sequences: u32,
    /// Whether sequences share the context's tokens, as endings do. Otherwise each has
    /// [`ContextOptions::tokens`] of its own, as a server's slots do.
    pub unified: bool,
}

impl ContextOptions {
    /// Number of sequences with a context of their own.
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
