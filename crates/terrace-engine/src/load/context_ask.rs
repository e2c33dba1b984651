//! What a context takes, by llama.cpp's own count: of a model whose header alone is loaded, with a context that has no memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_ggml::llama::{CacheType, Context, ContextParams, FlashAttention, LoadParams, Model};
use terrace_model::{ByteSize, KvType, KvTypes, ModelFile};
use terrace_plan::Wishes;
use terrace_plan::model::ContextSize;

/// A model's header, as llama.cpp understands it.
pub struct HeaderModel(Arc<Model>);

impl HeaderModel {
    /// Reads it; none, with a line in the log, where llama.cpp does not take the file: it wants all of it to be there.
    /// Takes as long as llama.cpp needs for the vocabulary: 0.2 s for 150,000 tokens.
    pub fn read(path: &Path) -> Option<Self> {
        let params = LoadParams { header_only: true, ..LoadParams::default() };
        let model = Model::load(path, &params);
        let model =
            model.inspect_err(|error| tracing::debug!("context sizes are estimated: {error}")).ok()?;
        Some(Self(Arc::new(model)))
    }

    /// A context of `tokens` tokens, computed in graphs of at most `ubatch` tokens of which `outputs` leave logits. None where
    /// llama.cpp makes no such context.
    pub fn context(&self, tokens: u32, kv_type: KvTypes, ubatch: u32, outputs: u32) -> Option<ContextSize> {
        self.slots(1, tokens, kv_type, ubatch, outputs)
    }

    /// The same for `slots` contexts in one, of `tokens` tokens each.
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
            kv_offload: true,
            flash_attention: FlashAttention::On,
        };
        let context = Context::new(Arc::clone(&self.0), &params, Arc::new(AtomicBool::new(false)));
        let context =
            context.inspect_err(|error| tracing::debug!("the context size is estimated: {error}")).ok()?;
        let (cache, compute) = context.memory();
        Some(ContextSize { cache, compute, logits: ByteSize::ZERO })
    }
}

/// What llama.cpp says of contexts as they are wished for, for each type of keys and values that may be chosen. Nothing of what
/// has to be estimated.
pub fn measured_contexts(
    path: &Path,
    file: &ModelFile,
    wishes: &Wishes,
    available: ByteSize,
) -> Vec<(KvTypes, ContextSize)> {
    // Its vocabulary is not kept beside the model's own.
    let Some(header) = HeaderModel::read(path) else { return Vec::new() };
    let (tokens, ubatch) = (wishes.tokens(file), wishes.ubatch(file, available));
    let context =
        |&ty: &KvTypes| Some((ty, header.slots(wishes.slots.max(1), tokens, ty, ubatch, wishes.outputs)?));
    wishes.kv_types().iter().filter_map(context).collect()
}

/// llama.cpp's type for the plan's.
pub fn cache_type(kv_type: KvType) -> CacheType {
    match kv_type {
        KvType::F16 => CacheType::F16,
        KvType::Q8_0 => CacheType::Q8_0,
        KvType::Q4_0 => CacheType::Q4_0,
    }
}
