//! Sizes and types of a context.

use crate::llama::pooling::Pooling;
use llama_cpp_sys_2 as sys;

/// Fusion of attention into one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAttention {
    /// llama.cpp decides. It declines if a layer's device does not compute it.
    Auto,
    /// Always fused.
    On,
}

/// Sizes of a context, and how it computes.
#[derive(Clone, Copy, Debug)]
pub struct ContextParams {
    /// Maximum number of tokens of each sequence; of all of them together if
    /// [`ContextParams::unified`].
    pub context: u32,
    /// Maximum number of tokens per decode call.
    pub batch: u32,
    /// Maximum number of tokens per graph.
    pub ubatch: u32,
    /// Maximum number of tokens of a graph that leave logits. Memory for this many is reserved.
    pub outputs: u32,
    /// Threads for computing one token of a sequence.
    pub threads: usize,
    /// Threads for computing several tokens of a sequence.
    pub threads_batch: usize,
    /// Fusion of attention.
    pub flash_attention: FlashAttention,
    /// True if keys and values are stored, and attention is computed, on the devices of their
    /// layers.
    pub kv_offload: bool,
    /// True if devices compute large batches of weights in main memory, which are copied to them for
    /// each graph.
    pub op_offload: bool,
    /// Maximum number of sequences.
    pub sequences: u32,
    /// True if all sequences share one cache of `context` tokens, and may share tokens in it.
    /// Otherwise each has its own cache and gets the results that it would get alone.
    pub unified: bool,
    /// Type of keys.
    pub k_type: CacheType,
    /// Type of values; quantised ones need fused attention.
    pub v_type: CacheType,
    /// Pooling of the embeddings that each call leaves, if it does. All tokens of a call leave
    /// logits then.
    pub embeddings: Option<Pooling>,
}

/// Storage of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// 32-bit floats.
    F32,
    /// llama.cpp's default.
    #[default]
    F16,
    /// 16-bit floats with the range of 32-bit ones; lossy.
    Bf16,
    /// 34 bytes for 32 values; lossy.
    Q8_0,
    /// 24 bytes for 32 values; lossy.
    Q5_1,
    /// 22 bytes for 32 values; lossy.
    Q5_0,
    /// 20 bytes for 32 values; lossy.
    Q4_1,
    /// 18 bytes for 32 values, by a table; lossy.
    Iq4Nl,
    /// 18 bytes for 32 values; lossy.
    Q4_0,
}

impl CacheType {
    const fn as_raw(self) -> sys::ggml_type {
        match self {
            Self::F32 => sys::GGML_TYPE_F32,
            Self::F16 => sys::GGML_TYPE_F16,
            Self::Bf16 => sys::GGML_TYPE_BF16,
            Self::Q8_0 => sys::GGML_TYPE_Q8_0,
            Self::Q5_1 => sys::GGML_TYPE_Q5_1,
            Self::Q5_0 => sys::GGML_TYPE_Q5_0,
            Self::Q4_1 => sys::GGML_TYPE_Q4_1,
            Self::Iq4Nl => sys::GGML_TYPE_IQ4_NL,
            Self::Q4_0 => sys::GGML_TYPE_Q4_0,
        }
    }
}

impl ContextParams {
    /// The parameters in llama.cpp's form, without callbacks.
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
        // llama.cpp ends the process if this is less than one per sequence.
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
        raw.op_offload = self.op_offload;
        raw.type_k = self.k_type.as_raw();
        raw.type_v = self.v_type.as_raw();
        if let Some(pooling) = self.embeddings {
            (raw.embeddings, raw.pooling_type) = (true, pooling.as_raw());
        }
        raw
    }
}
