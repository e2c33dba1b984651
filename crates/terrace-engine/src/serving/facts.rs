//! What does not change while a model is served.

use crate::chat::SpecialTokens;
use crate::engine::Engine;
use crate::report::PlanReport;
use std::path::PathBuf;
use terrace_model::identity::ModelIdentity;

/// What does not change while a model is served, replaced tensors aside.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// The file that was loaded, the first shard of a split model.
    pub file: PathBuf,
    /// What tells the model from others.
    pub identity: ModelIdentity,
    /// Jobs that are answered at the same time.
    pub slots: usize,
    /// Tokens that each slot holds.
    pub context: usize,
    /// Tokens of the contexts that the model was trained on.
    pub trained_context: u32,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// The model's chat template (Jinja source), if it has one.
    pub chat_template: Option<String>,
    /// Texts that chat templates refer to.
    pub special_tokens: SpecialTokens,
    /// What was decided.
    pub plan: PlanReport,
    /// Milliseconds that the load took.
    pub load_ms: f64,
}

impl ModelFacts {
    pub(super) fn of(engine: &Engine, slots: usize) -> Self {
        Self {
            file: engine.file().to_owned(),
            identity: engine.identity().clone(),
            slots,
            context: engine.context_size(),
            trained_context: engine.model().trained_context(),
            vocabulary: engine.vocab().len(),
            chat_template: engine.chat_template(),
            special_tokens: engine.special_tokens(),
            plan: engine.plan().clone(),
            load_ms: engine.load_ms(),
        }
    }

    /// Whether this number is a token.
    pub fn has_token(&self, token: i32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.vocabulary)
    }
}
