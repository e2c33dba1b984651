//! The model that is being loaded.

use super::managed::Owner;
use super::weights::Weights;
use crate::error::BackendError;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_ggml::Tensor;
use terrace_ggml::backend::parked::ParkedError;

/// The model whose weights llama.cpp is placing now. Loads are serialised, so there is at most one.
#[derive(Default)]
pub struct Loading(Mutex<Option<Arc<Weights>>>);

impl Loading {
    /// Starts a load: until [`Loading::end`], new buffers belong to `weights`.
    pub fn begin(&self, weights: Arc<Weights>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(weights);
    }

    /// Ends the load.
    pub fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns true if a model is being loaded.
    pub fn is_loading(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The model that is being loaded.
    ///
    /// # Errors
    /// [`BackendError::NotLoading`] outside a load.
    pub fn current(&self) -> Result<Arc<Weights>, BackendError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(BackendError::NotLoading)
    }
}

impl Owner for Loading {
    fn current(&self) -> Result<Arc<Weights>, ParkedError> {
        Ok(Self::current(self)?)
    }

    fn owns(&self, _: Tensor<'_>) -> bool {
        // Later, llama.cpp puts an adapter's tensors beside the weights that they are for.
        self.is_loading()
    }

    fn offered(&self, _: &Weights, _: Tensor<'_>, _: *const c_void, _: usize, _: usize) {
        // The model's header said what they are.
    }
}
