//! The model that is being loaded.

use super::weights::Weights;
use crate::error::BackendError;
use std::sync::{Arc, Mutex, PoisonError};

/// The model whose weights llama.cpp is placing just now. Loads are serialised, so there is one at most.
#[derive(Default)]
pub struct Loading(Mutex<Option<Arc<Weights>>>);

impl Loading {
    /// Buffers made from now on belong to `weights`, until [`Loading::end`].
    pub fn begin(&self, weights: Arc<Weights>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(weights);
    }

    /// No model is being loaded.
    pub fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The model that is being loaded.
    ///
    /// # Errors
    /// [`BackendError::NotLoading`] outside a load.
    pub fn current(&self) -> Result<Arc<Weights>, BackendError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(BackendError::NotLoading)
    }
}
