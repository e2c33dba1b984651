//! The context of a loaded model, and what makes the one for embeddings.

use super::context_ask::cache_type;
use super::scene::PlanInput;
use super::weights::Loaded;
use crate::adapters::Scales;
use crate::embedding::{Embedder, Shape};
use crate::error::EngineError;
use crate::options::{DraftSource, Embeds, Options, most_drafts};
use crate::unfit::Unfit;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::llama::{Context, ContextError, ContextParams, FlashAttention, Model, Observer};
use terrace_model::KvTypes;
use terrace_plan::model::{context_size, expert_groups};

/// Checks that llama.cpp knows how to generate text with a model of this kind, or how to embed it.
pub fn check_kind(model: &Model, scene: &PlanInput<'_>) -> Result<(), EngineError> {
    let path = scene.options.model.clone();
    if model.is_diffusion() {
        return Err(Unfit::Diffusion { path, architecture: scene.file.architecture().into() }.into());
    }
    // llama.cpp's graph of this one ends in embeddings, but its context is that of a decoder.
    let embeds = scene.file.architecture() == "llama-embed" && scene.ground.embedding.is_none();
    if embeds || model.has_encoder() || !model.has_decoder() || model.vocab().is_empty() {
        return Err(Unfit::NotGenerative(path).into());
    }
    Ok(())
}

/// The parameters of a model's context, or of the one for embeddings.
fn params(shape: Option<Shape>, stock: bool, scene: &PlanInput<'_>) -> ContextParams {
    let PlanInput { options, tokens, batch, ubatch, kv_type, threads, threads_batch, .. } = *scene;
    let params = ContextParams {
        context: tokens,
        batch,
        ubatch,
        outputs: options.context.outputs.max(drafted_outputs(scene)),
        sequences: options.context.sequences,
        unified: options.context.unified,
        threads,
        threads_batch,
        k_type: cache_type(kv_type.keys),
        v_type: cache_type(kv_type.values),
        kv_offload: options.context.kv_offload,
        op_offload: options.devices.op_offload,
        flash_attention: attention(stock, options, kv_type),
        embeddings: None,
    };
    let Some(Shape { pooling, tokens, ubatch, .. }) = shape else { return params };
    ContextParams {
        context: tokens,
        batch: ubatch,
        ubatch,
        outputs: ubatch,
        sequences: 1,
        unified: true,
        embeddings: Some(pooling),
        ..params
    }
}

/// Rows of logits of a pass that checks drafts.
fn drafted_outputs(scene: &PlanInput<'_>) -> u32 {
    let drafts = &scene.drafts;
    match drafts.source() {
        DraftSource::Off => 1,
        _ => most_drafts(drafts.draft_max, !expert_groups(&scene.file).is_empty()) + 1,
    }
}

/// The context of a loaded model.
pub struct Made {
    pub context: Context,
    /// Its tokens; per slot, if there are several.
    pub tokens: u32,
    /// Number of sequences with a context each.
    pub slots: u32,
    /// Most tokens per decode call, and per graph.
    pub batch: u32,
    pub ubatch: u32,
    /// Maker of the context for embeddings; `None` if nothing is to be embedded.
    pub embedder: Option<Embedder>,
}

/// Makes the context of a loaded model.
///
/// # Errors
/// llama.cpp's reason; the model generates no text, and nothing is to be embedded.
pub fn make(
    loaded: &Loaded,
    scene: &PlanInput<'_>,
    interrupt: &Arc<AtomicBool>,
    observer: Option<Box<dyn Observer>>,
) -> Result<Made, EngineError> {
    let PlanInput { ground, options, tokens, .. } = *scene;
    let model = &loaded.model;
    let stock = loaded.weights.is_none();
    let mut embedding = ground.embedding;
    let params = params(embedding.filter(|shape| shape.encoder), stock, scene);
    let unobserved = observer.is_none();
    let make = |params: &ContextParams, observer| {
        Context::observed(Arc::clone(model), params, Arc::clone(interrupt), observer)
    };
    let mut context = match make(&params, observer) {
        // Large batches need room on devices for the weights that are copied there.
        Err(error @ ContextError::Create { .. }) if unobserved && !stock && offloads(&params) => {
            let context = make(&ContextParams { op_offload: false, ..params }, None).map_err(|_| error)?;
            tracing::warn!(
                "devices have no room for weights in RAM: large batches are computed without them"
            );
            context
        }
        made => made?,
    };
    let (mut slots, mut batch, mut ubatch) = (scene.wishes.context.slots(), scene.batch, scene.ubatch);
    // Whether attention looks both ways stands in the header of most models that do. For the others it
    // follows from the graph that llama.cpp builds, which it shows of a context only: the context has to be
    // there to be asked, and cannot be given other batches then.
    let both_sides = !context.keeps_sequences() || !context.is_causal();
    if both_sides && params.embeddings.is_none() {
        let Some(shape) = embedding else {
            return Err(Unfit::NotGenerative(options.model.clone()).into());
        };
        let shape = shape.of_encoder(&scene.file, tokens);
        drop(context);
        embedding = Some(shape);
        (slots, batch, ubatch) = (1, shape.ubatch, shape.ubatch);
        context = make(&self::params(Some(shape), stock, scene), None)?;
    }
    if stock {
        context.attach_threads(scene.threads.max(scene.threads_batch));
    }
    // llama.cpp rounds contexts up, also beyond a table of positions.
    let size = context.size().min(scene.file.positions().unwrap_or(u32::MAX));
    warn_of_size(scene, size, model.trained_context());
    let embedder = embedding.map(|shape| embedder(shape, stock, scene));
    Ok(Made { context, tokens: size, slots, batch, ubatch, embedder })
}

/// Warns of a context that is not what was asked for, or longer than those of the model's training.
fn warn_of_size(scene: &PlanInput<'_>, size: u32, trained: u32) {
    let tokens = scene.tokens;
    let asked = scene.wishes.context.ctx.is_some() || scene.wishes.written.is_some();
    if asked && size > tokens {
        tracing::warn!("llama.cpp rounds the context of {tokens} tokens up to {size}");
    }
    if asked && trained > 0 && size > trained {
        tracing::warn!(
            "the context of {size} tokens is longer than the {trained} that the model was trained with: beyond that, quality drops"
        );
    }
}

/// Maker of the context for embeddings.
fn embedder(shape: Shape, stock: bool, scene: &PlanInput<'_>) -> Embedder {
    let params = params(Some(shape), stock, scene);
    let size = || context_size(&scene.file, shape.tokens, scene.kv_type, shape.ubatch, shape.ubatch).total();
    let uncounted = (scene.options.embeds() == Embeds::OnRequest).then(size);
    Embedder { shape, params, uncounted, stock, context: None, scales: Scales::default() }
}

/// Returns true if there is a device that may compute with weights in main memory.
fn offloads(params: &ContextParams) -> bool {
    params.op_offload && terrace_ggml::devices::devices().into_iter().any(DeviceHandle::offloads)
}

/// The fusion of attention. Left to decide, llama.cpp fuses it if the devices of all layers can
/// compute that. If keys and values stay in main memory, it declines wherever a device holds a
/// layer; and quantised values need fused attention.
fn attention(stock: bool, options: &Options, kv_type: KvTypes) -> FlashAttention {
    let free = options.context.kv_offload && !kv_type.values.is_quantised();
    if stock || free { FlashAttention::Auto } else { FlashAttention::On }
}
