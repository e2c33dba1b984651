//! The adapters that an engine computes with.

use super::{AdapterFacts, Scales};
use crate::engine::Engine;

impl Engine {
    /// The adapters that were loaded with the model, by their numbers.
    pub fn adapters(&self) -> &[AdapterFacts] {
        self.loaded_adapters().facts()
    }

    /// The scales of sessions that ask for no others.
    pub fn default_scales(&self) -> Scales {
        self.loaded_adapters().default_scales()
    }

    /// Has the context compute with these scales from now on.
    pub fn use_scales(&mut self, scales: &Scales) {
        let (adapters, context) = self.adapters_and_context();
        adapters.use_scales(context, scales);
    }
}
