//! The first node of a run that failed, as all threads see it.

use crate::error::BackendError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_ggml::backend::parked;

/// None has.
const NONE: usize = usize::MAX;

/// Which node failed, if any; the reason is parked.
pub struct Failure(AtomicUsize);

impl Default for Failure {
    fn default() -> Self {
        Self(AtomicUsize::new(NONE))
    }
}

impl Failure {
    /// Forgets the last run's.
    pub fn reset(&self) {
        self.0.store(NONE, Ordering::Relaxed);
    }

    /// Whether a node failed.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Whether a node before this one failed: ggml's own barrier lies in between, so every thread sees it. Not so a failure of
    /// thread 0 in the node itself, which may come before the others have got there; they have to meet it at the barrier.
    pub fn is_before(&self, node: usize) -> bool {
        self.0.load(Ordering::Relaxed) < node
    }

    /// Thread 0's part of a node. An error is parked and ends the run; so does a panic, which must not leave the other
    /// threads at the barrier.
    ///
    /// # Safety
    /// `stop` is the flag that ends the run, alive during the call.
    pub unsafe fn attempt(
        &self,
        node: usize,
        stop: *const AtomicBool,
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
            unsafe { (*stop).store(true, Ordering::Relaxed) };
        }
    }
}
