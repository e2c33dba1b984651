//! Loading a model.

use super::Engine;
use crate::adapters::Adapters;
use crate::drafts::{Drafts, open};
use crate::error::EngineError;
use crate::learn::shapes;
use crate::load::beside::{self, Beside};
use crate::load::context::{self, check_kind};
use crate::load::devices::separate;
use crate::load::drafts::planned;
use crate::load::header::Header;
use crate::load::key::key;
use crate::load::report::report;
use crate::load::scene::{PlanBase, PlanInput};
use crate::load::weights::{Loaded, Stored};
use crate::load::{LoadProgress, PlannedMachine, verify};
use crate::options::{Embeds, Options};
use crate::prompt_cache::PromptCache;
use crate::record::Record;
use crate::reload::budget::WeightBudget;
use crate::reload::registry::Registry;
use crate::reload::reloads::Reloads;
use crate::vision::Vision;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use terrace_ggml::llama::{Embedded, Observer};
use terrace_model::ByteSize;
use terrace_model::identity::ModelIdentity;
use terrace_model::learn::Reported;
use terrace_plan::Manage;

impl Engine {
    /// Loads a model. `progress` is called while resident weights are read, and may end the load.
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
    pub fn load_observed(
        options: Options,
        observer: Option<Box<dyn Observer>>,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Self, EngineError> {
        let begin = Instant::now();
        let interrupt = Arc::new(AtomicBool::new(false));
        let header = Header::read(&options)?;
        let mut record = Record::open(&options, &header.file);
        let usual = record.as_ref().and_then(Record::expected);
        let ground = PlanBase::of(&header, &options, PlannedMachine::default(), usual)?;
        let (scene, plan) = planned(&ground)?;
        let loaded = match plan {
            None => Loaded::stock(&options)?,
            Some(plan) => Stored::open(&scene, plan)?.install(&scene)?.load_model(&scene)?,
        };
        check_kind(&loaded.model, &scene)?;
        let vision = header
            .projector
            .as_ref()
            .map(|file| Vision::load(file, &loaded.model, scene.threads_batch, scene.ubatch).map(Arc::new))
            .transpose()?;
        if options.io.verify {
            verify::begin(&loaded, &scene, progress)?;
        }
        loaded.fill_resident(progress)?;
        let adapters = Adapters::load(&loaded.model, &header.adapters)?;
        let made = context::make(&loaded, &scene, &interrupt, observer)?;
        // Who asks for the page cache keeps it.
        if let Some(weights) = loaded.weights.as_ref().filter(|_| options.memory.manage() != Manage::Mapped) {
            weights.move_mapped(options.testing.move_mapped)?;
        }
        let load_ms = begin.elapsed().as_secs_f64() * 1e3;
        let registry = registry(&scene, &loaded);
        let Beside { usage, hot, watcher } = beside::begin(&scene, &loaded, record.as_mut(), progress)?;
        let report = report(&scene, &loaded, &made, &adapters, hot);
        let key = key(&scene);
        let (identity, shapes) = (ModelIdentity::of(&scene.file), shapes(&scene.file));
        let PlanInput { drafts, mtp, .. } = scene;
        let Header { trace, timeline, low, learn, .. } = header;
        let mut this = Self {
            identity,
            sessions: 0,
            holder: None,
            slots: report.slots,
            batch: report.batch as usize,
            interrupt,
            load_ms,
            reloads: Reloads::new(options.reload.contexts, options.reload.allowed),
            file: options.model,
            low: low.map(|low| low.loaded()),
            quality: None,
            chat_template: options.chat_template,
            watcher,
            record,
            context: made.context,
            embedder: made.embedder,
            vision,
            registry,
            adapters,
            model: loaded.model,
            weights: loaded.weights,
            trace,
            timeline,
            usage,
            shapes,
            learn: learn.output,
            reported: options.learn.learn_mode,
            prompt_cache: PromptCache::new(report.prompt_cache),
            key,
            report,
            drafts: None,
            scores: ByteSize::ZERO,
            prompt_observer: None,
            embedded: Embedded::default(),
        };
        this.open_prompt_cache(options.prompt_cache.cache_disk.as_ref())?;
        // Where nothing is to be reported, nothing is exchanged; a server may change that.
        if this.reported == Reported::Off {
            this.exchange_between_tokens(false);
        }
        if let Some(layers) = this.report.layer_skip.as_ref().map(|skip| skip.skip.clone()) {
            this.skip_layers(&layers)?;
        }
        if let Some(settings) = this.report.lossy.as_ref().map(|lossy| lossy.settings.clone()) {
            this.lose(&settings)?;
        }
        for mark in this.report.lossy_marks() {
            tracing::warn!("{mark}");
        }
        if options.embeddings.is_some_and(|embeddings| embeddings.made() == Embeds::AtLoad) {
            this.make_embedder()?;
        }
        this.drafts = open(&this, &drafts, mtp)?;
        if let Some(which) = this.drafts.as_ref().and_then(Drafts::hidden) {
            this.context.keep_hidden(which);
        }
        this.report.drafts = this.draft_source();
        if this.drafts.is_some() && this.vision.is_some() {
            tracing::warn!("responses to prompts with images are generated without drafts");
        }
        if let Some(text) = &options.learn.warmup_prompt {
            this.warm_up(text)?;
        }
        Ok(this)
    }
}

/// Lists the tensors of a loaded model, for reloads.
fn registry(scene: &PlanInput<'_>, loaded: &Loaded) -> Registry {
    let mut registry = Registry::new(&scene.file, &scene.ground.header.states, &loaded.model);
    if let (Some(weights), Some(plan)) = (&loaded.weights, &loaded.plan) {
        registry.budget = WeightBudget::of(plan, weights);
    }
    registry.slices = separate(scene.options.devices.usable()).len() as u64;
    registry.verifies = scene.options.io.verify;
    registry
}
