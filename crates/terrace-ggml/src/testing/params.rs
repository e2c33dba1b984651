//! Parameters of contexts that small models are tested in.

use crate::llama::{CacheType, ContextParams, FlashAttention};

/// One sequence of `tokens` tokens, which a batch and a graph can all have. One thread: on a busy
/// machine, spinning threads cost more than they save for models this small.
pub fn context_params(tokens: u32) -> ContextParams {
    ContextParams {
        kv_offload: true,
        op_offload: true,
        context: tokens,
        batch: tokens,
        ubatch: tokens,
        outputs: tokens,
        threads: 1,
        threads_batch: 1,
        flash_attention: FlashAttention::Auto,
        sequences: 1,
        unified: true,
        k_type: CacheType::F16,
        v_type: CacheType::F16,
        embeddings: None,
    }
}
