//! Reloads that are asked for while the model generates: they wait for the next boundary between two batches.

use super::reloads::ReloadOutcome;
use crate::engine::Engine;
use crate::error::EngineError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_backend::BackendError;
use terrace_ggml::llama::ContextError;
use terrace_store::StoreError;

impl Engine {
    /// Set it, from any thread, to have [`Engine::reload_changed`] done at the next boundary between two batches of
    /// [`Engine::generate`], or when that is called next.
    pub fn reload_request(&mut self) -> Arc<AtomicBool> {
        Arc::clone(&self.reloads().request)
    }

    /// Who is told what came of [requested](Engine::reload_request) reloads.
    pub fn on_reloads(&mut self, listener: impl FnMut(&ReloadOutcome) + Send + 'static) {
        self.reloads().listener = Some(Box::new(listener));
    }

    /// Does the reload that was asked for, if one was. Whether the context was forgotten. A refusal is the listener's: the
    /// model goes on as it was.
    pub(crate) fn reload_if_asked(&mut self) -> bool {
        // A load alone where nothing is asked.
        self.reload_is_asked() && self.requested_reload()
    }

    /// Whether a reload was asked for.
    pub(crate) fn reload_is_asked(&mut self) -> bool {
        self.reloads().request.load(Ordering::Relaxed)
    }

    /// Does the reload that was asked for, and tells the listener. Whether the context was forgotten.
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

    /// Whether a computation failed because a file that may be written to is being written to: it has become shorter for a
    /// moment. Then a reload is asked for, which waits for the writer, and the computation can be tried again after it.
    pub(crate) fn is_being_written(&mut self, error: &ContextError) -> bool {
        let ContextError::Backend(error) = error else { return false };
        let shrank =
            matches!(error.downcast_ref(), Some(BackendError::Store(StoreError::UnexpectedEof { .. })));
        let waits = shrank && self.reloads().expected;
        if waits {
            self.reloads().request.store(true, Ordering::Relaxed);
        }
        waits
    }

    /// Before anything is computed: what was streamed from a file that has been overwritten is not there any more.
    pub(crate) fn check_files(&self) -> Result<(), EngineError> {
        match &self.registry().overwritten {
            Some(path) => Err(EngineError::Overwritten { path: path.clone() }),
            None => Ok(()),
        }
    }
}
