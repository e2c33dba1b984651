//! Shared parts of the contexts of sources of drafts.

use super::DRAFT_UBATCH;
use crate::report::PlanReport;
use terrace_ggml::llama::{CacheType, ContextParams, FlashAttention};

/// A context on the CPU for the sequences of an engine, that leaves the logits of one token.
pub fn params(plan: &PlanReport) -> ContextParams {
    ContextParams {
        context: plan.context,
        batch: DRAFT_UBATCH,
        ubatch: DRAFT_UBATCH,
        outputs: 1,
        sequences: plan.slots.max(1),
        unified: false,
        threads: plan.threads,
        threads_batch: plan.threads_batch,
        k_type: CacheType::F16,
        v_type: CacheType::F16,
        kv_offload: false,
        op_offload: false,
        flash_attention: FlashAttention::Auto,
        embeddings: None,
    }
}

/// The token with the largest logit, the last of equals.
pub fn most_likely(logits: &[f32]) -> i32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(token, _)| i32::try_from(token).expect("a token"))
}

/// The position of the token at an index.
pub fn position(at: usize) -> u32 {
    u32::try_from(at).expect("within the context")
}
