//! The first node of a run that failed, as all threads see it.

use crate::error::BackendError;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_ggml::backend::parked;
use terrace_ggml::cpu::Stop;

/// No node has failed.
const NONE: usize = usize::MAX;

/// The first node that failed, if any; its error is parked.
pub struct Failure(AtomicUsize);

impl Default for Failure {
    fn default() -> Self {
        Self(AtomicUsize::new(NONE))
    }
}

impl Failure {
    /// Clears the failure of the last run.
    pub fn reset(&self) {
        self.0.store(NONE, Ordering::Relaxed);
    }

    /// Returns true if any node failed.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Returns true if a node before this one failed. ggml's own barrier lies in between, so every thread
    /// sees such a failure. A failure of thread 0 in this node does not count: it may happen before
    /// the other threads arrive, and they have to meet thread 0 at the barrier.
    pub fn is_before(&self, node: usize) -> bool {
        self.0.load(Ordering::Relaxed) < node
    }

    /// Runs thread 0's part of a node. An error is parked and ends the run, and so does a panic,
    /// which must not leave the other threads waiting at the barrier.
    ///
    /// # Safety
    /// `stop` ends the run, and is alive during the call.
    pub unsafe fn attempt(
        &self,
        node: usize,
        stop: *const Stop,
        part: impl FnOnce() -> Result<(), BackendError>,
    ) {
        let failed = parked::guard("an expert node", true, || match part() {
            Ok(()) => false,
            Err(error) => {
                parked::park(Box::new(error));
                true
            }
        });
        if failed {
            self.0.store(node, Ordering::Relaxed);
            // SAFETY: the caller's contract.
            unsafe { (*stop).set() };
        }
    }

    /// Ends a node like a failure, because its run is to end.
    pub fn end(&self, node: usize) {
        self.0.store(node, Ordering::Relaxed);
    }
}
