//! Loads a model step by step: header, size of the context, plan, store, device, model, resident
//! weights, context.

mod context_ask;
pub mod devices;
mod draft_memory;
mod drafts;
mod header;
pub mod hot;
mod hot_asked;
mod hot_division;
mod plan_file;
mod planned;
pub mod progress;
mod scene;
pub mod split;
mod verify;
mod weights;
mod wishes;

pub use context_ask::{HeaderModel, measured_contexts};
pub use hot::{HotDevice, HotPlan, HotTransit};
pub use planned::{Planned, plan_run};
pub use progress::LoadProgress;
use wishes::wishes_of;

use crate::adapters::{Adapters, Scales};
use crate::embedding::{Embedder, Shape};
use crate::error::EngineError;
use crate::learn::LearnFiles;
use crate::options::{DraftOptions, DraftSource, Embeds, KernelChoice, Mode, Options, most_drafts};
use crate::pressure;
use crate::prompt_cache::CacheKey;
use crate::reload::budget::WeightBudget;
use crate::reload::registry::Registry;
use crate::report::PlanReport;
use crate::timeline::TimelineFile;
use crate::trace::TraceFile;
use crate::unfit::Unfit;
use crate::usual::UsualLengths;
use crate::vision::Vision;
use crate::warm::{self, WarmStart};
use context_ask::cache_type;
use header::Header;
use planned::{settle_drafts, settled};
use scene::PlanInput;
pub use scene::PlannedMachine;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use terrace_backend::warm::{FirstUses, first_uses};
use terrace_backend::{ExpertUsage, Weights};
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::llama::{Context, ContextError, ContextParams, FlashAttention, Model, Observer};
use terrace_host::pressure::Watcher;
use terrace_lanes::Sending;
use terrace_model::{KvType, KvTypes, ModelFile, MtpUse};
use terrace_plan::Budget;
use terrace_plan::copies::Weighting;
use terrace_plan::model::{context_size, expert_groups};
use terrace_store::identity::{file_fingerprint, file_state};
use weights::{Loaded, Stored};

/// Everything that a load makes. The fields are dropped in this order: the watcher ends first, then
/// the statistics are saved; the context goes before the model, and the model before the weights.
pub struct Parts {
    pub watcher: Option<Watcher>,
    pub warm_start: Option<WarmStart>,
    pub usual: Option<UsualLengths>,
    pub context: Context,
    /// `None` if nothing is to be embedded.
    pub embedder: Option<Embedder>,
    /// `None` if no images are read.
    pub vision: Option<Arc<Vision>>,
    pub registry: Registry,
    pub adapters: Adapters,
    pub model: Arc<Model>,
    /// `None` in stock runs.
    pub weights: Option<Arc<Weights>>,
    pub trace: Option<TraceFile>,
    pub timeline: Option<TimelineFile>,
    pub report: PlanReport,
    pub file: ModelFile,
    /// The file of experts in fewer bits.
    pub low: Option<PathBuf>,
    pub learn: LearnFiles,
    /// Where drafts come from, and the MTP layers that were loaded for them.
    pub drafts: DraftOptions,
    pub mtp: MtpUse,
    /// Counts of the experts' uses; `None` in stock runs and for models without experts.
    pub usage: Option<Arc<ExpertUsage>>,
    /// Milliseconds until the context was made.
    pub load_ms: f64,
    /// Which computation kept conversations belong to; `None` if none go into files, or where the
    /// system does not say when the model's files were written.
    pub key: Option<CacheKey>,
}

/// Loads a model. `progress` is called while resident weights are read, and may end the load;
/// setting `interrupt` ends computations.
///
/// # Errors
/// [`EngineError`], each naming file, tensor, offset and numbers; nothing of the load remains.
pub fn load(
    options: &Options,
    interrupt: &Arc<AtomicBool>,
    observer: Option<Box<dyn Observer>>,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<Parts, EngineError> {
    let begin = Instant::now();
    let mut header = Header::read(options)?;
    settle_drafts(&mut header, options, PlannedMachine::default())?;
    let (mut scene, mut report) = settled(&header, options, PlannedMachine::default())?;
    let kv_type = report.kv_type;
    let loaded = match options.mode {
        Mode::Stock { repack } => Loaded::stock(options, repack)?,
        Mode::Terrace => {
            let plan = scene.plan()?;
            let stored = Stored::open(&scene, plan, &mut report)?;
            let installed = stored.install(&scene)?;
            installed.load_model(&scene, &mut report)?
        }
    };
    check_kind(&loaded.model, &scene)?;
    let vision = header
        .projector
        .as_ref()
        .map(|file| Vision::load(file, &loaded.model, report.threads_batch, report.ubatch).map(Arc::new))
        .transpose()?;
    report.projector = header.projector.as_ref().map(|projector| projector.facts.clone());
    if options.io.verify {
        verify::begin(&loaded, &header, options, progress)?;
    }
    loaded.fill_resident(progress)?;
    let adapters = Adapters::load(&loaded.model, &header.adapters)?;
    report.adapters = adapters.facts().to_vec();
    let context = context(&loaded, &mut scene, &mut report, interrupt, observer)?;
    let embedder = scene.embedding.map(|shape| embedder(shape, &loaded, &scene, &report));
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;
    let key = key(&header, options, kv_type);
    let usual = scene.usual.take();
    let mut parts = Parts {
        usual,
        key,
        embedder,
        vision,
        adapters,
        ..Parts::new(loaded, context, report, header, load_ms)
    };
    parts.registry.slices = devices::separate(options.devices.usable()).len() as u64;
    parts.start(options, progress)?;
    Ok(parts)
}

/// Checks that llama.cpp knows how to generate text with a model of this kind, or how to embed it.
fn check_kind(model: &Model, scene: &PlanInput<'_>) -> Result<(), EngineError> {
    let path = scene.options.model.clone();
    if model.is_diffusion() {
        return Err(Unfit::Diffusion { path, architecture: scene.file.architecture().into() }.into());
    }
    // llama.cpp's graph of this one ends in embeddings, but its context is that of a decoder.
    let embeds = scene.file.architecture() == "llama-embed" && scene.embedding.is_none();
    if embeds || model.has_encoder() || !model.has_decoder() || model.vocab().is_empty() {
        return Err(Unfit::NotGenerative(path).into());
    }
    Ok(())
}

/// The parameters of a model's context, or of the one for embeddings.
fn params(shape: Option<Shape>, stock: bool, scene: &PlanInput<'_>, report: &PlanReport) -> ContextParams {
    let PlanInput { options, tokens, .. } = *scene;
    let params = ContextParams {
        context: tokens,
        batch: report.batch,
        ubatch: report.ubatch,
        outputs: options.context.outputs.max(drafted_outputs(scene)),
        sequences: options.context.sequences,
        unified: options.context.unified,
        threads: report.threads,
        threads_batch: report.threads_batch,
        k_type: cache_type(report.kv_type.keys),
        v_type: cache_type(report.kv_type.values),
        kv_offload: options.context.kv_offload,
        op_offload: options.devices.op_offload,
        flash_attention: attention(stock, options, report.kv_type),
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
    let drafts = scene.drafts;
    match drafts.source() {
        DraftSource::Off => 1,
        _ => most_drafts(drafts.draft_max, !expert_groups(scene.file).is_empty()) + 1,
    }
}

/// What makes the context for embeddings.
fn embedder(shape: Shape, loaded: &Loaded, scene: &PlanInput<'_>, report: &PlanReport) -> Embedder {
    let stock = loaded.weights.is_none();
    let params = params(Some(shape), stock, scene, report);
    let size = || context_size(scene.file, shape.tokens, report.kv_type, shape.ubatch, shape.ubatch).total();
    let uncounted = (scene.options.embeds() == Embeds::OnRequest).then(size);
    Embedder { shape, params, uncounted, stock, context: None, scales: Scales::default() }
}

/// Makes the context of a loaded model.
fn context(
    loaded: &Loaded,
    scene: &mut PlanInput<'_>,
    report: &mut PlanReport,
    interrupt: &Arc<AtomicBool>,
    observer: Option<Box<dyn Observer>>,
) -> Result<Context, EngineError> {
    let PlanInput { options, tokens, .. } = *scene;
    let model = &loaded.model;
    let stock = loaded.weights.is_none();
    let params = params(scene.embedding.filter(|shape| shape.encoder), stock, scene, report);
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
    let both_sides = !context.keeps_sequences() || !context.is_causal();
    if both_sides && params.embeddings.is_none() {
        // The header has not said so.
        let Some(shape) = scene.embedding else {
            return Err(Unfit::NotGenerative(options.model.clone()).into());
        };
        let shape = shape.of_encoder(scene.file, tokens);
        drop(context);
        scene.embedding = Some(shape);
        (report.slots, report.batch, report.ubatch) = (1, shape.ubatch, shape.ubatch);
        context = make(&self::params(Some(shape), stock, scene, report), None)?;
    }
    if stock {
        context.attach_threads(report.threads.max(report.threads_batch));
    }
    // llama.cpp rounds contexts up, also beyond a table of positions.
    report.context = context.size().min(report.positions.unwrap_or(u32::MAX));
    let asked = scene.wishes.context.ctx.is_some() || scene.wishes.written.is_some();
    if asked && report.context > tokens {
        tracing::warn!("llama.cpp rounds the context of {tokens} tokens up to {}", report.context);
    }
    let trained = model.trained_context();
    if asked && trained > 0 && report.context > trained {
        tracing::warn!(
            "the context of {} tokens is longer than the {trained} that the model was trained with: beyond those, \
             answers get worse",
            report.context
        );
    }
    Ok(context)
}

/// The key of kept conversations, if they may go into files.
fn key(header: &Header, options: &Options, kv_type: KvTypes) -> Option<CacheKey> {
    let Header { file, states, layer_skip, lossy, low, adapters, .. } = header;
    let keeps = options.prompt_cache.saves_files() || options.prompt_cache.cache_disk.is_some();
    let skipped = layer_skip.as_ref().map_or_else(Vec::new, |skip| skip.skip.clone());
    let lossy = match (lossy, low) {
        (Some(lossy), Some(low)) => {
            let fingerprint = |path: PathBuf| file_fingerprint(&path, &file_state(&path).ok()?).ok();
            let files: Vec<_> = low.files().map(fingerprint).collect::<Option<_>>()?;
            Some(format!("{} {:?} {files:?}", lossy.settings, low.identity().ok()?))
        }
        (lossy, _) => lossy.as_ref().map(|lossy| lossy.settings.to_string()),
    };
    let sequences = (options.context.sequences, options.context.unified);
    let repacked = options.mode == Mode::Stock { repack: true };
    let computed = (kv_type.to_string(), skipped, lossy);
    let key = keeps.then(|| CacheKey::of(file, states, computed, repacked, sequences))??;
    let stock = matches!(options.mode, Mode::Stock { .. });
    let key = CacheKey { fast: !stock && options.kernels.kernels == KernelChoice::Fast, ..key };
    let identities = adapters.iter().map(|adapter| adapter.identity).collect::<Option<Vec<_>>>()?;
    Some(key.among(identities))
}

/// Whether there is a device that may compute with weights in main memory.
fn offloads(params: &ContextParams) -> bool {
    params.op_offload && terrace_ggml::devices::devices().into_iter().any(DeviceHandle::offloads)
}

/// Whether attention is fused. Left to decide, llama.cpp fuses it if the devices of all layers can
/// compute that. If keys and values stay in main memory, it declines wherever a device holds a
/// layer; and quantised values need fused attention.
fn attention(stock: bool, options: &Options, kv_type: KvTypes) -> FlashAttention {
    let free = options.context.kv_offload && kv_type.values == KvType::F16;
    if stock || free { FlashAttention::Auto } else { FlashAttention::On }
}

impl Parts {
    fn new(loaded: Loaded, context: Context, report: PlanReport, header: Header, load_ms: f64) -> Self {
        let Loaded { model, weights } = loaded;
        let Header { file, states, trace, timeline, low, learn, drafts, mtp, .. } = header;
        let low = low.map(|low| low.path().to_owned());
        let mut registry = Registry::new(&file, &states, &model);
        if let (Some(weights), Some(plan)) = (&weights, &report.placement) {
            registry.budget = WeightBudget::of(plan, weights);
        }
        let (watcher, warm_start, usual, embedder, vision) = (None, None, None, None, None);
        Self {
            watcher,
            warm_start,
            usual,
            context,
            embedder,
            vision,
            registry,
            adapters: Adapters::default(),
            model,
            weights,
            trace,
            timeline,
            report,
            file,
            low,
            learn,
            drafts,
            mtp,
            usage: None,
            load_ms,
            key: None,
        }
    }

    /// Starts what runs beside a loaded model: copies of experts, the timeline, the warm start, the
    /// watcher.
    fn start(
        &mut self,
        options: &Options,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let Some(weights) = &self.weights else { return Ok(()) };
        weights.store().reset_stats();
        weights.reset_foretold();
        self.usage = counts(&self.file, weights).filter(|_| !options.testing.uncounted);
        weights.observer().usage.clone_from(&self.usage);
        let traced = options.record.trace.is_some();
        let first = match &self.usage {
            Some(usage) if !traced => {
                let dir = options.kept("experts");
                self.warm_start = dir.and_then(|dir| WarmStart::open(&dir, &self.file, usage));
                let earlier = self.warm_start.as_ref().map(WarmStart::statistics);
                first_uses(self.learn.first.as_ref(), earlier, usage)
            }
            _ => FirstUses::default(),
        };
        if traced && self.learn.first.is_some() {
            tracing::warn!("the learn file has no effect while a trace is recorded: replays have none");
        }
        let by_uses = options.hot.hot_weighting != Weighting::Even;
        let asked = hot_asked::Asked {
            wishes: &wishes_of(options),
            hot: &options.hot,
            counts: if by_uses { &first } else { &[] },
            learned: self.learn.first.as_ref(),
            planned: self.report.placement.as_ref().map_or(&[][..], |plan| &plan.hot),
            transit: self.report.placement.as_ref().map_or(&[][..], |plan| &plan.transit),
            sending: if options.devices.op_offload { options.testing.sending } else { Sending::Off },
            speeds: &hot_division::speeds(&self.file, options),
            offload: options.devices.op_offload,
            traced,
        };
        self.report.hot = Some(hot::begin(&self.file, weights, asked));
        if let Some(plan) = &self.report.placement {
            *weights.pieces() = devices::pieces(plan, &options.devices);
        }
        if self.timeline.is_some() {
            TimelineFile::start(weights);
        }
        if !first.is_empty() {
            warm::begin(&self.file, weights, &first, progress)?;
        }
        if let Some(plan) = &self.report.placement
            // A budget from a plan file is as explicit as one given directly.
            && options.following.adapt.applies(if plan.auto_budget { Budget::Auto } else { Budget::Bytes(plan.budget) })
        {
            self.watcher = pressure::follow(weights, plan, options.testing.simulated_memory.as_deref())?;
        }
        Ok(())
    }
}

/// Zero counts for the experts of all layers; `None` for a model without experts.
fn counts(file: &ModelFile, weights: &Weights) -> Option<Arc<ExpertUsage>> {
    let layers: Vec<_> = expert_groups(file).iter().map(|group| (group.layer, group.experts)).collect();
    (!layers.is_empty()).then(|| Arc::new(ExpertUsage::new(layers, &weights.layout())))
}
