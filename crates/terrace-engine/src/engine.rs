//! Loading a model, and holding what was loaded.

use crate::context_ask::cache_type;
use crate::deciding::{asked_contexts, machine_for};
use crate::error::EngineError;
use crate::hot_cache;
use crate::layer_skip::{LayerSkip, ModelIdentity};
use crate::load::{asks_for_reading, load_managed};
use crate::machine::available_memory;
use crate::options::{KvChoice, Mode, Options};
use crate::placing::{Scene, read_plan};
use crate::pressure;
use crate::profile::{ProfileFile, SavedProfile};
use crate::reload::{Registry, Reloads, WeightBudget, states};
use crate::report::PlanReport;
use crate::trace::{SavedTrace, TraceFile};
use crate::warm::WarmStart;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use terrace_backend::{Foretold, HotReport, HotTotals, Lanes, Weights};
use terrace_ggml::devices::rpc::add_rpc_server;
use terrace_ggml::gguf;
use terrace_ggml::llama::{
    Context, ContextParams, FlashAttention, LoadParams, Model, Observer, Token, Vocab,
};
use terrace_model::ByteSize;
use terrace_plan::{Budget, auto_ubatch, context_tokens};
use terrace_store::{LayerStats, StoreStats};

/// How far the load of resident weights has come.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Bytes read.
    pub done: ByteSize,
    /// Bytes to read.
    pub total: ByteSize,
}

/// Texts of the tokens that chat templates name.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    /// Beginning of a document.
    pub bos: Option<String>,
    /// End of a document.
    pub eos: Option<String>,
}

/// A loaded model with a context.
pub struct Engine {
    // Dropped in this order: the watcher ends first, then the statistics are saved; the context before the model, the model
    // before the weights.
    watcher: Option<pressure::Watcher>,
    warm_start: Option<WarmStart>,
    context: Context,
    registry: Registry,
    model: Arc<Model>,
    weights: Option<Arc<Weights>>,
    trace: Option<TraceFile>,
    profile: Option<ProfileFile>,
    report: PlanReport,
    identity: ModelIdentity,
    /// The tokens in the context.
    history: Vec<i32>,
    /// Sequences with a context of their own.
    slots: u32,
    batch: usize,
    interrupt: Arc<AtomicBool>,
    load_ms: f64,
    reloads: Reloads,
    file: PathBuf,
}

/// What a reload works on.
pub(crate) struct ReloadParts<'e> {
    pub registry: &'e mut Registry,
    pub weights: Option<&'e Weights>,
    pub context: &'e mut Context,
}

impl Engine {
    /// Loads a model. `progress` is told about resident weights and may end the load.
    ///
    /// # Errors
    /// [`EngineError`], each naming file, tensor, offset and numbers; nothing of the load remains.
    pub fn load(
        options: Options,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Self, EngineError> {
        Self::load_observed(options, None, progress)
    }

    /// Loads a model whose graphs are observed.
    pub(crate) fn load_observed(
        options: Options,
        observer: Option<Box<dyn Observer>>,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Self, EngineError> {
        let begin = Instant::now();
        let file = gguf::read(&options.model)?;
        let states = states(&file);
        for endpoint in &options.rpc {
            add_rpc_server(endpoint)?;
        }
        let trace = TraceFile::for_run(&options)?;
        let profile = ProfileFile::for_run(&options)?;
        if options.layer_skip.is_some() && matches!(options.mode, Mode::Stock { .. }) {
            return Err(EngineError::StockLayers);
        }
        let layer_skip = options.layer_skip.as_ref().map(|path| LayerSkip::read(path, &file)).transpose()?;
        let threads = options.threads.map_or_else(terrace_ggml::cpu::default_threads, |t| t.max(1) as usize);
        let mut options = options;
        let written = match (&options.plan, options.mode) {
            (Some(path), Mode::Terrace) => Some(read_plan(path)?),
            _ => None,
        };
        if let Some(context) = written.as_ref().map(|plan| plan.context) {
            (options.ctx, options.kv_type) = (Some(context.tokens), KvChoice::Type(context.kv_type));
        }
        let tokens = context_tokens(&file, options.ctx);
        let available = available_memory();
        let batch = options.batch.clamp(1, tokens);
        let ubatch = options.ubatch.unwrap_or_else(|| auto_ubatch(&file, tokens, available)).clamp(1, batch);
        let reading = asks_for_reading(&options);
        let contexts = asked_contexts(&file, &options, (tokens, ubatch), available);
        let scene = Scene {
            options: &options,
            written: written.as_ref(),
            file: &file,
            tokens,
            ubatch,
            machine: &machine_for(&file, &options, available),
            mapping: reading.is_none(),
            contexts: &contexts,
        };
        let kv_type = scene.kv_type();
        let needed = scene.context(kv_type);
        if needed > available {
            return Err(EngineError::ContextTooLarge { tokens, needed, available });
        }
        let repacks = options.mode == Mode::Stock { repack: true };
        let repacked = ByteSize(2 * file.size().bytes()) + needed;
        if repacks && repacked > available {
            return Err(EngineError::RepackTooLarge { needed: repacked, available });
        }
        let mut report = PlanReport {
            mode: if repacks { "repacked" } else { "stock" }.into(),
            placement: None,
            placed: None,
            kv_type,
            io: None,
            direct: None,
            io_reason: None,
            tuned_gbps: None,
            hot: None,
            layer_skip: None,
            context: tokens,
            slots: options.slots(),
            context_bytes: needed,
            batch,
            ubatch,
            threads,
        };
        let mut planned = hot_cache::PlannedLanes::new();
        let (model, weights) = match options.mode {
            Mode::Stock { repack } => {
                let read = options.reloads;
                (Model::load(&options.model, &LoadParams { repack, read, ..LoadParams::default() })?, None)
            }
            Mode::Terrace => {
                let (model, weights, lanes) = load_managed(&scene, &mut report, progress)?;
                planned = lanes;
                (model, Some(weights))
            }
        };
        if !model.has_decoder() || model.vocab().is_empty() {
            return Err(EngineError::NotGenerative(options.model));
        }
        let model = Arc::new(model);
        let mut registry = Registry::new(&file, &states, &model);
        if let (Some(weights), Some(plan)) = (&weights, &report.placement) {
            registry.budget = WeightBudget::of(plan, weights);
        }
        let interrupt = Arc::new(AtomicBool::new(false));
        let params = ContextParams {
            context: tokens,
            batch: report.batch,
            ubatch: report.ubatch,
            outputs: options.outputs,
            sequences: options.sequences,
            unified: options.unified,
            threads,
            // Stock says yes to "auto" on a CPU; with our device in between it would say no.
            kv_type: cache_type(kv_type),
            kv_offload: options.kv_offload,
            flash_attention: if weights.is_some() { FlashAttention::On } else { FlashAttention::Auto },
        };
        let mut context = Context::observed(Arc::clone(&model), &params, Arc::clone(&interrupt), observer)?;
        if weights.is_none() {
            context.attach_threads(threads);
        }
        report.context = context.size();
        if options.ctx.is_some() && report.context > tokens {
            tracing::warn!("llama.cpp rounds the context of {tokens} tokens up to {}", report.context);
        }
        let (batch, slots) = (report.batch as usize, report.slots);
        let load_ms = begin.elapsed().as_secs_f64() * 1e3;
        let mut warm_start = None;
        if let Some(weights) = &weights {
            weights.store().reset_stats();
            weights.reset_foretold();
            let asked = hot_cache::Asked {
                choice: options.hot_cache,
                update: options.hot_update,
                split: options.hot_split,
                planned: &planned,
                traced: options.record_trace.is_some(),
            };
            report.hot = Some(hot_cache::begin(&file, weights, asked));
            if profile.is_some() {
                ProfileFile::start(&mut weights.store());
            }
            if let (Some(dir), None) = (&options.warm_start, &options.record_trace) {
                let begun = WarmStart::begin(dir, &file, weights, progress);
                warm_start = begun?;
            }
        }
        let mut watcher = None;
        if let (Some(weights), Some(plan)) = (&weights, &report.placement)
            // A budget out of a plan's file is as much the user's word as a flag.
            && options.adapt.applies(if plan.auto_budget { Budget::Auto } else { Budget::Bytes(plan.budget) })
        {
            watcher = pressure::start(weights, plan, options.simulated_memory.as_deref())?;
        }
        let identity = ModelIdentity::of(&file);
        let mut this = Self {
            watcher,
            warm_start,
            context,
            registry,
            model,
            weights,
            trace,
            profile,
            report,
            identity,
            history: Vec::new(),
            slots,
            batch,
            interrupt,
            load_ms,
            reloads: Reloads::new(options.on_reload, options.reloads),
            file: options.model,
        };
        if let Some(skip) = layer_skip {
            this.skip_layers(&skip.skip)?;
            if !skip.skip.is_empty() {
                tracing::warn!("lossy: {skip}");
            }
            this.report.layer_skip = Some(skip);
        }
        Ok(this)
    }

    /// Leaves layers (ascending; not the first or the last) out from now on; forgets what the context held.
    pub(crate) fn skip_layers(&mut self, layers: &[u32]) -> Result<(), EngineError> {
        let weights = self.weights.as_ref().ok_or(EngineError::StockLayers)?;
        weights.skip_layers(layers);
        self.reset();
        Ok(())
    }

    /// The layers that have weights in the store, ascending; none in stock runs.
    pub fn streamed_layers(&self) -> Vec<u32> {
        let Some(weights) = &self.weights else { return Vec::new() };
        let layout = weights.layout();
        let layers: BTreeSet<u32> = layout.tensors().iter().filter_map(|t| Some(t.layer?.0)).collect();
        layers.into_iter().collect()
    }

    /// The file that was loaded, the first shard of a split model.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What tells the model from others.
    pub fn identity(&self) -> &ModelIdentity {
        &self.identity
    }

    /// What was decided.
    pub fn plan(&self) -> &PlanReport {
        &self.report
    }

    /// The text's tokens; `add_special` with the tokens that the model wants around a document, `parse_special` with
    /// control tokens recognised in the text.
    ///
    /// # Errors
    /// [`EngineError::Tokenize`].
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<i32>, EngineError> {
        tokenize(&self.model, text, add_special, parse_special)
    }

    /// The model's chat template (Jinja source).
    pub fn chat_template(&self) -> Option<String> {
        self.model.chat_template()
    }

    /// Texts that chat templates refer to.
    pub fn special_tokens(&self) -> SpecialTokens {
        SpecialTokens { bos: self.vocab().bos_text(), eos: self.vocab().eos_text() }
    }

    /// Tokens in the context.
    pub fn position(&self) -> usize {
        self.history.len()
    }

    /// Tokens that the context holds; each sequence, where they do not share it.
    pub fn context_size(&self) -> usize {
        self.report.context as usize
    }

    /// Sequences that share the context's tokens.
    pub(crate) fn sequences(&self) -> u32 {
        if self.slots > 1 { 1 } else { self.context.sequences() }
    }

    /// Sequences with a context of their own, of [`Engine::context_size`] tokens each.
    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    /// As [`Context::first_position`].
    pub(crate) fn first_position(&self, sequence: u32) -> Option<u32> {
        self.context.first_position(sequence)
    }

    /// Forgets everything that was evaluated.
    pub fn reset(&mut self) {
        self.context.clear();
        self.history.clear();
    }

    /// Milliseconds that [`Engine::load`] took.
    pub fn load_ms(&self) -> f64 {
        self.load_ms
    }

    /// What the store has done since the load; none in stock runs.
    pub fn store_stats(&self) -> Option<StoreStats> {
        self.weights.as_ref().map(|weights| weights.store().stats())
    }

    /// Bytes of RAM that weights may take now, where the plan's budget has [adapted](crate::Adapt); none in stock runs.
    pub fn budget_now(&self) -> Option<ByteSize> {
        let (weights, plan) = (self.weights.as_ref()?, self.report.placement.as_ref()?);
        let store = weights.store();
        let handle = store.budget_handle(ByteSize::ZERO);
        // Replaced tensors have what is lent.
        let given_up = handle.most().saturating_sub(store.capacity() + handle.lent());
        Some(plan.budget.saturating_sub(given_up))
    }

    /// Whether the budget follows the memory that there is.
    pub fn adapts(&self) -> bool {
        self.watcher.is_some()
    }

    /// The same by layer; empty in stock runs.
    pub fn layer_stats(&self) -> Vec<LayerStats> {
        self.weights.as_ref().map(|weights| weights.store().layer_stats().to_vec()).unwrap_or_default()
    }

    /// How well the next layer's experts were foretold since the load; none in stock runs.
    pub fn foretold(&self) -> Option<Foretold> {
        self.weights.as_ref().map(|weights| weights.foretold())
    }

    /// What devices hold of experts, and computed with them since the load; none if they hold none.
    pub fn hot_experts(&self) -> Option<HotReport> {
        self.weights.as_ref()?.lanes().as_ref().map(Lanes::report)
    }

    /// The totals of [`Engine::hot_experts`].
    pub fn hot_totals(&self) -> Option<HotTotals> {
        self.weights.as_ref()?.lanes().as_ref().map(Lanes::totals)
    }

    /// Ends the recording that [`Options::record_trace`] asked for, and writes it; none was asked for, or no
    /// experts are managed: none.
    ///
    /// # Errors
    /// [`EngineError::Trace`]; a file that was there before is then as it was.
    pub fn save_trace(&mut self) -> Result<Option<SavedTrace>, EngineError> {
        let (Some(trace), Some(weights)) = (self.trace.take(), &self.weights) else { return Ok(None) };
        let recorder = weights.observer().recorder.take();
        let stats = weights.store().stats();
        recorder.map(|recorder| trace.save(recorder, &stats)).transpose()
    }

    /// Ends the recording that [`Options::profile`] asked for, and writes it: reads, waits and computing since the load. None
    /// was asked for, or the run is stock's: none.
    ///
    /// # Errors
    /// [`EngineError::Profile`]; a file that was there before is then as it was.
    pub fn save_profile(&mut self) -> Result<Option<SavedProfile>, EngineError> {
        let (Some(profile), Some(weights)) = (self.profile.take(), &self.weights) else { return Ok(None) };
        profile.save(&mut weights.store())
    }

    /// Keeps what was counted of experts' uses so far ([`Options::warm_start`]). It is done by itself when the engine is
    /// dropped; a program that may be ended at any time does it whenever it is idle.
    pub fn save_warm_start(&self) {
        if let Some(warm_start) = &self.warm_start {
            warm_start.save();
        }
    }

    /// Set it to end a computation at the next node; generation then stops as cancelled. The setter clears it.
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
    }

    /// Logits of the last evaluated token, one per vocabulary entry.
    pub fn logits(&mut self) -> Option<&[f32]> {
        self.context.logits()
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn reloads(&mut self) -> &mut Reloads {
        &mut self.reloads
    }

    pub(crate) fn history(&self) -> &[i32] {
        &self.history
    }

    pub(crate) fn reload_parts(&mut self) -> ReloadParts<'_> {
        ReloadParts {
            registry: &mut self.registry,
            weights: self.weights.as_deref(),
            context: &mut self.context,
        }
    }

    pub(crate) fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    pub(crate) fn vocab(&self) -> Vocab<'_> {
        self.model.vocab()
    }

    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    pub(crate) fn advance(&mut self, tokens: &[Token]) {
        self.history.extend(tokens.iter().map(|token| token.0));
    }

    /// Forgets what lies behind `position`; everything if this model's memory cannot be cut.
    pub(crate) fn rewind(&mut self, position: usize) {
        let cut = u32::try_from(position).is_ok_and(|p| self.context.truncate(0, p));
        if cut {
            self.history.truncate(position);
        } else {
            self.reset();
        }
    }
}

/// See [`Engine::tokenize`]: a model's vocabulary can be used from any thread.
pub(crate) fn tokenize(
    model: &Model,
    text: &str,
    add_special: bool,
    parse_special: bool,
) -> Result<Vec<i32>, EngineError> {
    let tokens = model.vocab().tokenize(text, add_special, parse_special)?;
    Ok(tokens.into_iter().map(|token| token.0).collect())
}
