//! Measures the size of a context by llama.cpp's own count: on a model of which only the header is
//! loaded, with a context that has no memory.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_ggml::llama::{CacheType, Context, ContextParams, FlashAttention, LoadParams, Model, Weight};
use terrace_model::{ByteSize, KvType, KvTypes, ModelFile};
use terrace_plan::Wishes;
use terrace_plan::model::ContextSize;

/// Bytes by which llama.cpp notes each token of a context, also of one without memory: a position, two
/// coordinates, a shift and the set of 256 sequences (`llama_kv_cells`).
const NOTES: u64 = 4 + 8 + 4 + 32;

/// A model whose header alone is loaded by llama.cpp.
pub struct HeaderModel(Arc<Model>);

impl HeaderModel {
    /// Reads the header. `None`, with a line in the log, if llama.cpp rejects the file, as it does
    /// if a part is missing. Takes the time that llama.cpp needs for the vocabulary: 0.2 s for
    /// 150,000 tokens.
    pub fn read(path: &Path) -> Option<Self> {
        let params = LoadParams { header_only: true, ..LoadParams::default() };
        let model = Model::load(path, &params);
        let model =
            model.inspect_err(|error| tracing::debug!("context sizes are estimated: {error}")).ok()?;
        Some(Self(Arc::new(model)))
    }

    /// Names of the tensors that llama.cpp loads.
    pub fn tensors(&self) -> HashSet<String> {
        Weight::all(&self.0).into_iter().map(|weight| weight.name()).collect()
    }

    /// The number of tokens of a prompt; `None` if the vocabulary cannot tell.
    pub fn tokens(&self, text: &str) -> Option<usize> {
        self.0.vocab().tokenize(text, true, true).ok().map(|tokens| tokens.len())
    }

    /// The size of a context of `tokens` tokens, computed in graphs of at most `ubatch` tokens of
    /// which `outputs` leave logits. `None` if llama.cpp cannot make such a context.
    pub fn context(&self, tokens: u32, kv_type: KvTypes, ubatch: u32, outputs: u32) -> Option<ContextSize> {
        self.slots(1, tokens, kv_type, ubatch, outputs)
    }

    /// The total size of `slots` such contexts in one, of `tokens` tokens each.
    pub fn slots(
        &self,
        slots: u32,
        tokens: u32,
        kv_type: KvTypes,
        ubatch: u32,
        outputs: u32,
    ) -> Option<ContextSize> {
        let params = ContextParams {
            context: tokens,
            batch: ubatch,
            ubatch,
            outputs,
            sequences: slots,
            unified: false,
            threads: 1,
            threads_batch: 1,
            k_type: cache_type(kv_type.keys),
            v_type: cache_type(kv_type.values),
            embeddings: None,
            kv_offload: true,
            op_offload: true,
            flash_attention: FlashAttention::On,
        };
        let context = Context::new(Arc::clone(&self.0), &params, Arc::new(AtomicBool::new(false)));
        let context =
            context.inspect_err(|error| tracing::debug!("the context size is estimated: {error}")).ok()?;
        let (cache, compute) = context.memory();
        Some(ContextSize { cache, compute, logits: ByteSize::ZERO })
    }
}

/// The sizes, by llama.cpp's count, of the context that `wishes` ask for, for each type of keys and
/// values that may be chosen. Sizes that have to be estimated are left out; those of all contexts so long that
/// notes about their tokens alone would take an eighth of the available memory.
pub fn measured_contexts(
    header: &HeaderModel,
    file: &ModelFile,
    wishes: &Wishes,
    available: ByteSize,
) -> Vec<(KvTypes, ContextSize)> {
    let (tokens, slots) = (wishes.tokens(file), wishes.context.slots());
    let notes = u64::from(tokens) * u64::from(slots) * NOTES;
    if notes > available.bytes() / 8 {
        tracing::debug!(tokens, slots, "the context size is estimated: counting would take too much memory");
        return Vec::new();
    }
    let ubatch = wishes.ubatch(file, available);
    let context =
        |&ty: &KvTypes| Some((ty, header.slots(slots, tokens, ty, ubatch, wishes.context.outputs)?));
    wishes.kv_types(file).iter().flatten().filter_map(context).collect()
}

/// The cache type of llama.cpp that corresponds to the plan's type.
pub fn cache_type(kv_type: KvType) -> CacheType {
    match kv_type {
        KvType::F32 => CacheType::F32,
        KvType::F16 => CacheType::F16,
        KvType::Bf16 => CacheType::Bf16,
        KvType::Q8_0 => CacheType::Q8_0,
        KvType::Q5_1 => CacheType::Q5_1,
        KvType::Q5_0 => CacheType::Q5_0,
        KvType::Q4_1 => CacheType::Q4_1,
        KvType::Iq4Nl => CacheType::Iq4Nl,
        KvType::Q4_0 => CacheType::Q4_0,
    }
}
