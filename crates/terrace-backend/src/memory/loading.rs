//! The model that is being loaded.

use super::weights::Weights;
use crate::error::BackendError;
use std::sync::{Arc, Mutex, PoisonError};

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

    /// The model that is being loaded.
    ///
    /// # Errors
    /// [`BackendError::NotLoading`] outside a load.
    pub fn current(&self) -> Result<Arc<Weights>, BackendError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(BackendError::NotLoading)
    }
}
