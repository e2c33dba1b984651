//! The shared state of a job and its caller. `model-check` runs this file.

use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The state of a job and of its caller. Written under the queue's lock.
#[derive(Debug, Default)]
pub struct Standing {
    /// The caller has dropped its ticket. Ends a pass that is computed for this job alone.
    pub left: Arc<AtomicBool>,
    /// The job has ended.
    pub ended: AtomicBool,
    /// The job needs no slot: it embeds.
    pub slotless: bool,
}

impl Standing {
    /// Returns whether the caller has dropped its ticket.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}
