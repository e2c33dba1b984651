//! Sizes and types of a context.

use llama_cpp_sys_2 as sys;

/// Whether attention runs as one fused operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAttention {
    /// llama.cpp decides: it says no when another device than the CPU would compute it.
    Auto,
    /// Yes.
    On,
}

/// Sizes of a context.
#[derive(Clone, Copy, Debug)]
pub struct ContextParams {
    /// Tokens that each sequence may have; all of them together where [`ContextParams::unified`].
    pub context: u32,
    /// Most tokens per decode call.
    pub batch: u32,
    /// Most tokens per graph.
    pub ubatch: u32,
    /// Tokens of a graph that leave logits, at most: memory for that many is set aside.
    pub outputs: u32,
    /// Threads for computing.
    pub threads: usize,
    /// Threads for computing several tokens of a sequence.
    pub threads_batch: usize,
    /// Fused attention.
    pub flash_attention: FlashAttention,
    /// Whether keys and values are on the devices of their layers, and attention is computed there.
    pub kv_offload: bool,
    /// Sequences of tokens at most.
    pub sequences: u32,
    /// Whether all sequences are in the same `context` tokens, and may share some of them. Otherwise each has a cache of its
    /// own, and what it computes is what it would compute alone.
    pub unified: bool,
    /// Type of keys.
    pub k_type: CacheType,
    /// Type of values; quantised ones need fused attention.
    pub v_type: CacheType,
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// llama.cpp's default.
    #[default]
    F16,
    /// 34 bytes for 32 values; lossy.
    Q8_0,
    /// 18 bytes for 32 values; lossy.
    Q4_0,
}

impl CacheType {
    const fn as_raw(self) -> sys::ggml_type {
        match self {
            Self::F16 => sys::GGML_TYPE_F16,
            Self::Q8_0 => sys::GGML_TYPE_Q8_0,
            Self::Q4_0 => sys::GGML_TYPE_Q4_0,
        }
    }
}

impl ContextParams {
    /// As llama.cpp takes them; without callbacks.
    pub(super) fn raw(&self) -> sys::llama_context_params {
        // SAFETY: returns plain values.
        let mut raw = unsafe { sys::llama_context_default_params() };
        let threads = |threads: usize| i32::try_from(threads.clamp(1, 512)).expect("clamped");
        raw.n_ctx = match self.unified {
            true => self.context,
            false => self.context.saturating_mul(self.sequences.max(1)),
        };
        raw.n_batch = self.batch;
        raw.n_ubatch = self.ubatch;
        // One per sequence at least, or llama.cpp ends the process.
        raw.n_outputs_max = self.outputs.clamp(1, self.batch.max(1)).max(self.sequences);
        raw.n_seq_max = self.sequences;
        raw.kv_unified = self.unified && self.sequences > 1;
        raw.n_threads = threads(self.threads);
        raw.n_threads_batch = threads(self.threads_batch);
        raw.no_perf = true;
        raw.flash_attn_type = match self.flash_attention {
            FlashAttention::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        };
        raw.offload_kqv = self.kv_offload;
        raw.type_k = self.k_type.as_raw();
        raw.type_v = self.v_type.as_raw();
        raw
    }
}
