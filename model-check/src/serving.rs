//! `terrace_serving`, as far as its queue knows it.

#[path = "../../crates/terrace-serving/src/queue.rs"]
pub mod queue;
#[path = "../../crates/terrace-serving/src/standing.rs"]
pub mod standing;
#[path = "../../crates/terrace-serving/src/ticket.rs"]
pub mod ticket;

use job::{Prepared, Refused, Sink};
use queue::Queue;
use std::sync::Arc;
use ticket::Ticket;

/// `terrace_serving::Serving::submit`.
///
/// # Errors
/// As there.
pub fn submit(queue: &Arc<Queue>, job: Prepared, sink: Sink) -> Result<Ticket, Refused> {
    let standing = queue.submit(job, sink)?;
    Ok(Ticket::new(Arc::clone(queue), standing))
}

/// A learn file to apply.
pub mod apply {
    pub struct Apply;
}

/// Texts to embed.
pub mod embed {
    use super::standing::Standing;
    use std::sync::Arc;

    pub type EmbedJob = ();
    pub type EmbedDone = ();

    pub struct EmbedRequest {
        pub job: EmbedJob,
        pub done: EmbedDone,
        pub standing: Arc<Standing>,
    }
}

/// A task for a slot.
pub mod slot_task {
    pub struct SlotTask {
        pub slot: usize,
    }
}

/// A job that is its caller's number, and a sink without events.
pub mod job {
    pub type Prepared = usize;
    pub type Sink = Box<dyn FnMut() + Send>;

    #[derive(Debug, PartialEq, Eq)]
    pub enum Refused {
        Full { waiting: usize },
        Stopped,
    }
}

pub mod status {
    #[derive(Clone, Debug, Default)]
    pub struct ServingStatus {
        pub waiting: usize,
        pub embedding: usize,
    }
}
