//! The caller's hold on a job.

use super::queue::Queue;
use super::standing::Standing;
use std::sync::Arc;

/// A job that was accepted. Dropping the ticket takes the job out of the queue without a call to
/// its sink or, if it already has a slot, cancels it before the next batch. After the job has
/// ended, dropping has no effect.
#[must_use = "dropping the ticket cancels the job"]
pub struct Ticket {
    queue: Arc<Queue>,
    standing: Arc<Standing>,
}

impl Ticket {
    pub(super) fn new(queue: Arc<Queue>, standing: Arc<Standing>) -> Self {
        Self { queue, standing }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.leave(&self.standing);
    }
}
