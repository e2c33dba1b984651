//! The loaded model.

mod observed;
mod prompt_progress;
mod start;
mod text;

pub use prompt_progress::PromptProgress;

use crate::adapters::Adapters;
use crate::drafts::Drafts;
use crate::embedding::Embedder;
use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::learn::LearnOutput;
use crate::lossy::{Budget, LoadedLow, LossySettings};
use crate::prompt_cache::{CacheKey, DiskCache, PromptCache};
use crate::record::Record;
use crate::reload::budget;
use crate::reload::registry::Registry;
use crate::reload::reloads::Reloads;
use crate::report::PlanReport;
use crate::session::Session;
use crate::slots_limit::SlotsLimit;
use crate::timeline::TimelineFile;
use crate::trace::TraceFile;
use crate::unfit::{NoLoss, Unfit};
use crate::vision::Vision;
use prompt_progress::Observer;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use terrace_backend::{ExpertUsage, LossyRouting, PassKind, Weights};
use terrace_ggml::llama::{Batch, Context, ContextError, Embedded, Model, Vocab};
use terrace_host::pressure::Watcher;
use terrace_model::identity::ModelIdentity;
use terrace_model::learn::{LayerShape, Reported};
use terrace_model::{ByteSize, LayerId};
use terrace_plan::Plan;

/// A loaded model with a context.
pub struct Engine {
    // Dropped in this order: the watcher ends first, then the record is saved; the contexts
    // go before the model, and the model before the weights.
    watcher: Option<Watcher>,
    record: Option<Record>,
    /// The source of drafts; `None`: there is none.
    drafts: Option<Drafts>,
    context: Context,
    embedder: Option<Embedder>,
    vision: Option<Arc<Vision>>,
    registry: Registry,
    adapters: Adapters,
    model: Arc<Model>,
    weights: Option<Arc<Weights>>,
    trace: Option<TraceFile>,
    timeline: Option<TimelineFile>,
    report: PlanReport,
    /// The file of experts in fewer bits that was loaded.
    low: Option<LoadedLow>,
    /// The quality budget; `None` if there is none.
    quality: Option<Budget>,
    identity: ModelIdentity,
    /// Number of sessions begun, and the id of the one whose tokens the first sequence holds.
    sessions: u64,
    holder: Option<u64>,
    /// Number of sequences that each have a context of their own.
    slots: u32,
    batch: usize,
    interrupt: Arc<AtomicBool>,
    load_ms: f64,
    reloads: Reloads,
    file: PathBuf,
    /// The one in place of the model's own.
    chat_template: Option<String>,
    /// Counts of the experts' uses, and the layers that have experts.
    usage: Option<Arc<ExpertUsage>>,
    shapes: Vec<LayerShape>,
    learn: Option<LearnOutput>,
    /// Detail of reports about experts at first.
    reported: Reported,
    key: Option<CacheKey>,
    /// Kept conversations, until a worker takes them.
    prompt_cache: PromptCache,
    /// Memory for the logits of prompts' own tokens; none before the first such prompt.
    scores: ByteSize,
    pub(crate) prompt_observer: Option<Observer>,
    /// Reused: embeddings of an image.
    embedded: Embedded,
}

/// The parts that a reload changes.
pub(crate) struct ReloadParts<'e> {
    pub registry: &'e mut Registry,
    pub weights: Option<&'e Weights>,
    pub context: &'e mut Context,
}

impl Engine {
    /// Skips these layers (ascending; not the first or the last) from now on, and clears the
    /// context.
    pub fn skip_layers(&mut self, layers: &[u32]) -> Result<(), EngineError> {
        let weights = self.weights.as_ref().ok_or(Unfit::StockLayers)?;
        weights.skip_layers(layers);
        self.reset();
        Ok(())
    }

    /// Computes with this loss from now on, and clears the context.
    ///
    /// # Errors
    /// [`Unfit::Lossy`] in stock runs, and for another number of
    /// experts per token, or another file of experts in fewer bits, than those of the load.
    pub fn lose(&mut self, settings: &LossySettings) -> Result<(), EngineError> {
        let weights = self.weights.as_ref().ok_or_else(|| Unfit::from(NoLoss::Stock))?;
        let loaded = self.report.lossy.as_ref().and_then(|lossy| lossy.settings.experts);
        if settings.experts != loaded {
            return Err(Unfit::from(NoLoss::Loaded).into());
        }
        if settings.low.is_some() && settings.low.as_ref() != self.low.as_ref().map(|low| &low.path) {
            return Err(Unfit::from(NoLoss::LowLoaded).into());
        }
        let first = self.shapes.iter().map(|shape| LayerId(shape.layer)).min();
        self.quality = Budget::of(settings, self.low.as_ref(), first);
        let now = self.quality.as_ref().map_or_else(|| settings.routing(), Budget::routing);
        weights.set_lossy(now);
        if self.report.layer_skip.is_none() {
            weights.skip_layers(&settings.skip[..]);
        }
        self.reset();
        Ok(())
    }

    pub(crate) const fn quality(&self) -> Option<&Budget> {
        self.quality.as_ref()
    }

    pub(crate) const fn quality_and_context(&mut self) -> Option<(&mut Budget, &mut Context)> {
        match &mut self.quality {
            Some(budget) => Some((budget, &mut self.context)),
            None => None,
        }
    }

    /// Routes the next passes so.
    pub(crate) fn route(&self, routing: Option<LossyRouting>) {
        if let Some(weights) = &self.weights {
            weights.set_lossy(routing);
        }
    }

    /// Routes all later passes exactly.
    pub(crate) fn lose_nothing(&mut self) {
        self.quality = None;
        self.route(None);
    }

    /// The layers with weights in the store, ascending; empty in stock runs.
    pub fn streamed_layers(&self) -> Vec<u32> {
        let Some(weights) = &self.weights else { return Vec::new() };
        let layout = weights.layout();
        let layers: BTreeSet<u32> = layout.tensors().iter().filter_map(|t| Some(t.layer?.0)).collect();
        layers.into_iter().collect()
    }

    /// The file that was loaded; of a split model, its first shard.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The identity of the model.
    pub fn identity(&self) -> &ModelIdentity {
        &self.identity
    }

    /// The effective plan.
    pub fn plan(&self) -> &PlanReport {
        &self.report
    }

    /// A handle that limits the memory of the slots; `None` if nothing streams.
    pub fn slots_limit(&self) -> Option<SlotsLimit> {
        let budget = self.registry.budget.as_ref()?.slots()?.clone();
        Some(SlotsLimit::new(budget, Arc::downgrade(self.weights.as_ref()?)))
    }

    /// Opens the directory of kept conversations.
    fn open_prompt_cache(&mut self, disk: Option<&(PathBuf, ByteSize)>) -> Result<(), FileError> {
        let Some((dir, most)) = disk else { return Ok(()) };
        let Some(key) = self.key.clone() else {
            let reason = "the system does not say when the model's files were written".into();
            return Err(FileError { role: FileRole::PromptCache, path: dir.clone(), reason });
        };
        let memory = (self.memory(), self.context_size());
        self.prompt_cache.disk = Some(DiskCache::open(dir, most.bytes(), key, memory)?);
        Ok(())
    }

    /// The kept conversations.
    pub fn take_prompt_cache(&mut self) -> PromptCache {
        std::mem::take(&mut self.prompt_cache)
    }

    /// Which computation kept conversations belong to. `None` if they are not to go into files, or
    /// after a reload, which no file tells of.
    pub fn cache_key(&self) -> Option<&CacheKey> {
        self.key.as_ref().filter(|_| self.epoch() == 0)
    }

    /// Makes a new, empty session.
    pub fn session(&mut self) -> Session {
        self.sessions += 1;
        Session { id: self.sessions, scales: self.default_scales(), ..Session::default() }
    }

    /// Gives the context to a session. If another session held it, or it was cleared, this session
    /// has to be evaluated again.
    pub(crate) fn hand_to(&mut self, session: &mut Session) {
        if self.holder != Some(session.id) {
            session.forget(0);
            self.context.clear();
            self.holder = Some(session.id);
        }
    }

    /// Notes, after the context was cleared, that this session is evaluated next.
    pub(crate) fn hand_back_to(&mut self, session: &Session) {
        self.holder = Some(session.id);
    }

    /// Capacity of the context in tokens; per sequence, if sequences do not share it.
    pub fn context_size(&self) -> usize {
        self.report.context as usize
    }

    /// Number of sequences that share the context's tokens.
    pub(crate) fn sequences(&self) -> u32 {
        if self.slots > 1 { 1 } else { self.context.sequences() }
    }

    /// Number of sequences with a context of their own, of [`Engine::context_size`] tokens each.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// See [`Context::first_position`].
    pub fn first_position(&self, sequence: u32) -> Option<u32> {
        self.context.first_position(sequence)
    }

    /// Drops all keys and values.
    pub fn reset(&mut self) {
        self.context.clear();
        self.holder = None;
    }

    /// The layers with experts.
    pub fn shapes(&self) -> &[LayerShape] {
        &self.shapes
    }

    /// Detail of reports about experts at first.
    pub const fn reported(&self) -> Reported {
        self.reported
    }

    pub(crate) fn forget_learn_output(&mut self) {
        self.learn = None;
    }

    pub(crate) fn learn_output(&self) -> Option<&LearnOutput> {
        self.learn.as_ref()
    }

    /// The weights that Terrace holds; `None` in stock runs.
    pub fn weights(&self) -> Option<&Arc<Weights>> {
        self.weights.as_ref()
    }

    /// A flag that ends a computation at the next node when it is set; generation then stops as
    /// cancelled. Whoever sets it has to clear it.
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
    }

    /// Has this flag end passes, too, from now on: [`Engine::evaluate`] is then interrupted. `None`: only
    /// [`Engine::interrupt_flag`] does.
    pub fn end_passes_with(&mut self, caller: Option<Arc<AtomicBool>>) {
        self.context.end_with(caller);
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Logits of the last evaluated token, one per vocabulary entry.
    pub fn logits(&mut self) -> Option<&[f32]> {
        self.context.logits()
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Requested reloads, and what follows one.
    pub fn reloads(&mut self) -> &mut Reloads {
        &mut self.reloads
    }

    pub(crate) fn reload_parts(&mut self) -> ReloadParts<'_> {
        ReloadParts {
            registry: &mut self.registry,
            weights: self.weights.as_deref(),
            context: &mut self.context,
        }
    }

    /// The context of llama.cpp that all sessions share.
    pub fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    /// The reader of images; `None`: there is none.
    pub const fn vision(&self) -> Option<&Arc<Vision>> {
        self.vision.as_ref()
    }

    pub(crate) const fn embedded(&mut self) -> &mut Embedded {
        &mut self.embedded
    }

    /// Computes a batch for this purpose. With a quality budget, some lone tokens are computed exactly as well.
    pub fn decode(&mut self, batch: &mut Batch, kind: PassKind) -> Result<(), ContextError> {
        if kind == PassKind::Decode && self.quality.is_some() {
            self.decode_within_budget(batch)
        } else {
            self.decode_once(batch, kind)
        }
    }

    /// Computes a batch once.
    pub(crate) fn decode_once(&mut self, batch: &mut Batch, kind: PassKind) -> Result<(), ContextError> {
        self.set_pass_kind(Some(kind));
        let measured = self.weights.as_ref().filter(|weights| weights.begin_batch(batch.len())).cloned();
        let begun = Instant::now();
        let computed = self.context.decode_batch(batch);
        if let Some(weights) = measured {
            if computed.is_ok() && batch.outputs() == 0 {
                self.context.synchronize();
            }
            weights.end_batch(computed.is_ok().then(|| begun.elapsed()));
        }
        self.set_pass_kind(None);
        self.note_decoded(computed.is_ok() && batch.outputs() > 0);
        computed
    }

    /// Says what the next passes are for; `None`: that follows from their numbers of tokens.
    pub(crate) fn set_pass_kind(&self, kind: Option<PassKind>) {
        if let Some(weights) = &self.weights {
            weights.set_pass_kind(kind);
        }
    }

    /// Notes that a batch is back; `waited` tells that all of it was computed.
    pub(crate) fn note_decoded(&self, waited: bool) {
        if let Some(weights) = &self.weights {
            let mut store = weights.store();
            weights.pieces().returned(waited, &mut store);
        }
    }

    /// Numbers of large batches whose experts in RAM both ggml's offload and lanes could compute: left to
    /// ggml, and computed with lanes.
    pub fn contested_batches(&self) -> [u64; 2] {
        self.weights.as_ref().map_or([0; 2], |weights| weights.contested_batches())
    }

    /// Returns true if devices compute layers, tensors or experts.
    pub fn uses_devices(&self) -> bool {
        let hot =
            self.report.hot.as_ref().is_some_and(|hot| !hot.devices.is_empty() || !hot.transit.is_empty());
        let placed = |plan: &Plan| !plan.devices.layers.is_empty() || !plan.devices.single.is_empty();
        hot || self.report.placement.as_ref().is_some_and(placed)
    }

    pub(crate) const fn drafts(&self) -> Option<&Drafts> {
        self.drafts.as_ref()
    }

    pub(crate) const fn drafts_and_context(&mut self) -> (Option<&mut Drafts>, &mut Context) {
        (self.drafts.as_mut(), &mut self.context)
    }

    pub(crate) const fn drafts_mut(&mut self) -> Option<&mut Drafts> {
        self.drafts.as_mut()
    }

    pub(crate) const fn embedder(&self) -> &Option<Embedder> {
        &self.embedder
    }

    pub(crate) const fn embedder_mut(&mut self) -> &mut Option<Embedder> {
        &mut self.embedder
    }

    /// The context for embeddings, the engine's own, and the adapters.
    pub(crate) const fn contexts(&mut self) -> (Option<&mut Embedder>, &mut Context, &mut Adapters) {
        (self.embedder.as_mut(), &mut self.context, &mut self.adapters)
    }

    pub(crate) const fn loaded_adapters(&self) -> &Adapters {
        &self.adapters
    }

    pub(crate) const fn adapters_and_context(&mut self) -> (&mut Adapters, &mut Context) {
        (&mut self.adapters, &mut self.context)
    }

    /// Sets aside up to `bytes` of the budget for weights for the context for embeddings. Returns how
    /// many.
    pub(crate) fn lend_beside(&mut self, bytes: ByteSize) -> ByteSize {
        let (own, scores) = (self.registry.own_memory(), self.scores);
        let weights = self.weights.as_deref();
        let lent = budget::lend_beside(self.registry.budget.as_mut(), weights, own, bytes + scores);
        lent.saturating_sub(scores)
    }

    /// Sets aside `bytes` of the budget for the logits of prompts' own tokens, of which a graph leaves up
    /// to `rows` rows.
    pub(crate) fn reserve_scores(&mut self, bytes: ByteSize, rows: usize) {
        if self.scores != bytes {
            self.scores = bytes;
            self.context.allow_outputs(rows);
            let made = self.embedder.as_ref().filter(|embedder| embedder.context.is_some());
            self.lend_beside(made.and_then(|embedder| embedder.uncounted).unwrap_or_default());
        }
    }

    /// The model of llama.cpp, which other threads may use as well.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The model's vocabulary.
    pub fn vocab(&self) -> Vocab<'_> {
        self.model.vocab()
    }

    /// Maximum number of tokens in a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.save_learned();
        self.report_uncounted();
    }
}
