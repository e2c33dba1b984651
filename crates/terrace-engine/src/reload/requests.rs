//! Reloads that are requested while the model generates. They wait for the next boundary between
//! two batches.

use super::reloads::ReloadOutcome;
use crate::engine::Engine;
use crate::error::EngineError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_backend::BackendError;
use terrace_ggml::llama::ContextError;
use terrace_store::StoreError;

/// How often in a row a computation that meets the end of a file is tried again. Each time a file
/// that is being written is waited for, about 3 s.
const MOST_TRIES: u32 = 8;

impl Engine {
    /// A flag that, set from any thread, requests [`Engine::reload_changed`] at the next boundary
    /// between two batches of [`Engine::generate`], or at its next call.
    pub fn reload_request(&mut self) -> Arc<AtomicBool> {
        Arc::clone(&self.reloads().request)
    }

    /// Sets the listener for outcomes of [requested](Engine::reload_request) reloads.
    pub fn on_reloads(&mut self, listener: impl FnMut(&ReloadOutcome) + Send + 'static) {
        self.reloads().listener = Some(Box::new(listener));
    }

    /// Performs a requested reload, if there is one. Returns whether the context was cleared.
    /// Refusals go to the listener, and the model stays unchanged.
    pub(crate) fn reload_if_asked(&mut self) -> bool {
        // Costs one atomic load if nothing was requested.
        self.reload_is_asked() && self.requested_reload()
    }

    /// Whether a reload was requested.
    pub(crate) fn reload_is_asked(&mut self) -> bool {
        self.reloads().request.load(Ordering::Relaxed)
    }

    /// Performs the requested reload and calls the listener. Returns whether the context was
    /// cleared.
    pub(crate) fn requested_reload(&mut self) -> bool {
        self.reloads().request.store(false, Ordering::Relaxed);
        let outcome = self.reload_changed();
        match (&mut self.reloads().listener, &outcome) {
            (Some(listener), outcome) => listener(outcome),
            (None, Err(error)) => tracing::warn!("{error}"),
            (None, Ok(_)) => {}
        }
        outcome.is_ok_and(|report| report.cleared)
    }

    /// Whether a computation failed because a file is being written and is therefore too short for
    /// the moment. If so, requests a reload, which waits for the writer; after that the computation
    /// can be tried again, but not for ever: a file may stay too short though nobody writes to it.
    pub(crate) fn is_being_written(&mut self, error: &ContextError) -> bool {
        let ContextError::Backend(error) = error else { return false };
        let shrank =
            matches!(error.downcast_ref(), Some(BackendError::Store(StoreError::UnexpectedEof { .. })));
        let reloads = self.reloads();
        let waits = shrank && reloads.expected && reloads.cut_short < MOST_TRIES;
        if waits {
            reloads.cut_short += 1;
            reloads.request.store(true, Ordering::Relaxed);
        }
        waits
    }

    /// Fails, before anything is computed, if a file that weights stream from was overwritten and
    /// its old bytes are gone.
    pub(crate) fn check_files(&self) -> Result<(), EngineError> {
        match &self.registry().overwritten {
            Some((path, _)) => Err(EngineError::Overwritten { path: path.clone() }),
            None => Ok(()),
        }
    }
}
