//! LoRA adapters in contexts of tests.

use crate::llama::{Adapter, Context, Model};
use std::path::Path;
use std::sync::Arc;

/// Loads the adapter at `path`, and has the context compute with it. The model frees it.
///
/// # Panics
/// If llama.cpp refuses it.
pub fn apply(model: &Arc<Model>, context: &mut Context, path: &Path) {
    let adapter = Adapter::load(model, path).unwrap_or_else(|error| panic!("{error}"));
    context.set_adapters([(&adapter, 1.0)]);
}
