//! Reloads that are requested while the model generates. They wait for the next boundary between
//! two batches.

use super::find::Unreadable;
use super::reloads::{Pending, ReloadOutcome, Tries};
use super::replacement::Take;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::options::OnReload;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_backend::BackendError;
use terrace_ggml::llama::ContextError;
use terrace_store::StoreError;

/// Number of tries in a row of a computation that meets the end of a file, each after a
/// reload, whose tries end after about 3 s.
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

    /// Tries a requested reload, if there is one. Returns whether the context was cleared. Refusals
    /// go to the listener, and the model stays unchanged.
    pub(crate) fn reload_if_asked(&mut self) -> bool {
        let before = self.epoch();
        self.step_reload();
        self.epoch() != before && self.reloads().then == OnReload::Clear
    }

    /// Requests a reload, as the flag does, or joins the one that is pending. Its outcome is
    /// returned by [`Engine::step_reload`].
    pub fn ask_reload(&mut self, take: Take) {
        let new = || Pending { tries: Tries::new(), heard: false, take };
        let pending = self.reloads().pending.get_or_insert_with(new);
        if take == Take::All {
            pending.take = take;
        }
    }

    /// Tries the requested reload once, if there is one and its next try is due. Never sleeps.
    /// Returns its outcome, after the listener has got it; `None` if there is nothing to try, or if
    /// a file is being written and another try follows.
    pub fn step_reload(&mut self) -> Option<ReloadOutcome> {
        let reloads = self.reloads();
        // Costs one atomic load if nothing was requested.
        if reloads.request.load(Ordering::Relaxed) {
            let new = || Pending { tries: Tries::new(), heard: true, take: Take::All };
            let pending = reloads.pending.get_or_insert_with(new);
            (pending.heard, pending.take) = (true, Take::All);
        }
        let mut pending = reloads.pending.take_if(|pending| pending.tries.wait().is_zero())?;
        if pending.heard {
            reloads.request.store(false, Ordering::Relaxed);
        }
        let outcome = match self
            .attempt(&mut |registry| registry.changed(pending.take, Unreadable::Fails), pending.tries.begin)
        {
            Err(error) if error.may_pass() && pending.tries.again() => {
                self.reloads().pending = Some(pending);
                return None;
            }
            other => other.map_err(Arc::new),
        };
        if pending.heard {
            match (&mut self.reloads().listener, &outcome) {
                (Some(listener), outcome) => listener(outcome),
                (None, Err(error)) => tracing::warn!("{error}"),
                (None, Ok(_)) => {}
            }
        }
        Some(outcome)
    }

    /// Time until the next try of a reload; `None` if none is pending.
    pub fn reload_wait(&mut self) -> Option<Duration> {
        self.reloads().pending.as_ref().map(|pending| pending.tries.wait())
    }

    /// Returns true if a computation failed because a file is being written and is therefore too short for
    /// the moment. If so, requests a reload, which waits for the writer; after that the computation
    /// can be tried again, but not for ever: a file may stay too short though nobody writes to it.
    pub(crate) fn is_being_written(&mut self, error: &ContextError) -> bool {
        let ContextError::Backend(error) = error else { return false };
        let shrank =
            matches!(error.downcast_ref(), Some(BackendError::Store(StoreError::UnexpectedEof { .. })));
        let reloads = self.reloads();
        if !shrank || !reloads.expected {
            return false;
        }
        // Other slots meet the same end of the file.
        if reloads.pending.is_some() || reloads.request.load(Ordering::Relaxed) {
            return true;
        }
        let waits = reloads.cut_short < MOST_TRIES;
        if waits {
            reloads.cut_short += 1;
            reloads.request.store(true, Ordering::Relaxed);
        }
        waits
    }

    /// Returns true if nothing can be computed for the moment: the bytes of a file are gone, but it is being
    /// written, and a reload is pending.
    pub fn awaits_writer(&mut self) -> bool {
        self.registry().overwritten.is_some() && self.reloads().pending.is_some()
    }

    /// Fails, before anything is computed, if a file that weights stream from was overwritten and
    /// its old bytes are gone, or if slices on devices do not match.
    pub fn check_files(&self) -> Result<(), EngineError> {
        if let Some((path, _)) = &self.registry().overwritten {
            return Err(EngineError::Overwritten { path: path.clone() });
        }
        match self.registry().unsliced.first() {
            Some(block) => Err(EngineError::Unsliced { block: block.clone() }),
            None => Ok(()),
        }
    }
}
