//! Loading a model.

use super::Engine;
use crate::drafts::{Drafts, open};
use crate::error::EngineError;
use crate::learn::shapes;
use crate::load::{LoadProgress, load};
use crate::options::{Embeds, Options};
use crate::prompt_cache::PromptCache;
use crate::reload::reloads::Reloads;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_ggml::llama::{Embedded, Observer};
use terrace_model::ByteSize;
use terrace_model::identity::ModelIdentity;
use terrace_model::learn::Reported;

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
        let interrupt = Arc::new(AtomicBool::new(false));
        let parts = load(&options, &interrupt, observer, progress)?;
        let mut this = Self {
            identity: ModelIdentity::of(&parts.file),
            sessions: 0,
            holder: None,
            slots: parts.report.slots,
            batch: parts.report.batch as usize,
            interrupt,
            load_ms: parts.load_ms,
            reloads: Reloads::new(options.reload.contexts, options.reload.allowed),
            file: options.model,
            low: parts.low,
            chat_template: options.chat_template,
            watcher: parts.watcher,
            record: parts.record,
            context: parts.context,
            embedder: parts.embedder,
            vision: parts.vision,
            registry: parts.registry,
            adapters: parts.adapters,
            model: parts.model,
            weights: parts.weights,
            trace: parts.trace,
            timeline: parts.timeline,
            usage: parts.usage,
            shapes: shapes(&parts.file),
            learn: parts.learn.output,
            reported: options.learn.learn_mode,
            prompt_cache: PromptCache::new(parts.report.prompt_cache),
            key: parts.key,
            report: parts.report,
            drafts: None,
            scores: ByteSize::ZERO,
            embedded: Embedded::default(),
        };
        this.registry.verifies = options.io.verify;
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
        this.drafts = open(&this, &parts.drafts, parts.mtp)?;
        if let Some(which) = this.drafts.as_ref().and_then(Drafts::hidden) {
            this.context.keep_hidden(which);
        }
        this.report.drafts = this.draft_source();
        if this.drafts.is_some() && this.vision.is_some() {
            tracing::warn!("answers to prompts with images are computed without drafts");
        }
        if let Some(text) = &options.learn.warmup_prompt {
            this.warm_up(text)?;
        }
        Ok(this)
    }
}
