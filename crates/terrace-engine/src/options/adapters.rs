//! Adapters.

use std::path::PathBuf;

/// An adapter that is loaded with the model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterOption {
    /// A GGUF file of type `adapter`.
    pub path: PathBuf,
    /// How much of it is added where sessions ask for nothing else: a finite number.
    pub scale: f32,
}
