//! What the caller of a job has of it.

use super::queue::{Queue, Standing};
use std::sync::Arc;

/// A job that was taken. Dropped, it leaves the queue, and its sink is told nothing; or, if it has a slot already, it ends
/// before the next batch, as cancelled. Of a job that has ended it is of no use any more.
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
