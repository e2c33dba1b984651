//! Adapters (LoRA): files of low-rank products that are added to those with a model's weights, each with
//! a scale of its own in each session. The weights themselves stay as they are, wherever they are.

mod applied;
mod file;
mod scales;

pub use file::{AdapterFacts, AdapterFile};
pub use scales::Scales;

use crate::error::EngineError;
use std::sync::Arc;
use terrace_ggml::llama::{Adapter, Context, Model};

/// The loaded adapters of a model.
#[derive(Debug, Default)]
pub struct Adapters {
    loaded: Vec<Adapter>,
    facts: Vec<AdapterFacts>,
    /// The scales of sessions that ask for no others.
    default: Scales,
    /// The scales of the engine's context now.
    applied: Scales,
}

impl Adapters {
    /// Loads the adapters of these files. Call it before contexts of the model are made.
    ///
    /// # Errors
    /// llama.cpp refuses one.
    pub fn load(model: &Arc<Model>, files: &[AdapterFile]) -> Result<Self, EngineError> {
        let mut this = Self::default();
        for AdapterFile { facts, .. } in files {
            this.loaded.push(Adapter::load(model, &facts.path)?);
            this.facts.push(facts.clone());
        }
        let scales: Vec<f32> = this.facts.iter().map(|facts| facts.scale).collect();
        this.default = Scales::new(&scales);
        Ok(this)
    }

    /// Facts about them, by their numbers.
    pub fn facts(&self) -> &[AdapterFacts] {
        &self.facts
    }

    /// The scales of sessions that ask for no others.
    pub fn default_scales(&self) -> Scales {
        self.default.clone()
    }

    /// Has a context compute with these scales.
    pub fn apply(&self, context: &mut Context, scales: &Scales) {
        context.set_adapters(self.loaded.iter().enumerate().map(|(id, adapter)| (adapter, scales.of(id))));
    }

    /// Has the engine's context compute with these scales, unless it does.
    fn use_scales(&mut self, context: &mut Context, scales: &Scales) {
        if self.applied != *scales {
            self.apply(context, scales);
            self.applied = scales.clone();
        }
    }
}
