//! The events of a job on their way from the engine's worker to a client, which may read them
//! slowly or not at all.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_engine::serving::{Event, Sink};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, channel};

/// Events that may wait for a client: a token is one at most, so this is some 2 MiB. The worker
/// never waits: beyond this, the job ends.
const BACKLOG: usize = 16_384;

/// What is left of a job's events, until the worker drops their sink.
pub struct Events {
    events: Receiver<Event>,
    /// Whether the job ended since too many events waited.
    full: Arc<AtomicBool>,
}

/// Why no further events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// Too many waited.
    Full,
    /// The worker has dropped the sink; all events have been read.
    Read,
}

/// Where the worker puts the events of a job, and where they come out.
pub fn events() -> (Sink, Events) {
    let (send, events) = channel(BACKLOG);
    let full = Arc::<AtomicBool>::default();
    let mark = Arc::clone(&full);
    let sink = move |event| match send.try_send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(TrySendError::Closed(_)) => ControlFlow::Break(()),
        Err(TrySendError::Full(_)) => {
            mark.store(true, Ordering::Relaxed);
            ControlFlow::Break(())
        }
    };
    (Box::new(sink), Events { events, full })
}

impl Events {
    /// The next event.
    ///
    /// # Errors
    /// There is none, and none will come.
    pub async fn next(&mut self) -> Result<Event, Backlog> {
        self.events.recv().await.ok_or_else(|| {
            // The sink was dropped after it set this, and that was seen.
            if self.full.load(Ordering::Relaxed) { Backlog::Full } else { Backlog::Read }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn the_worker_never_waits_and_what_waits_is_bounded() {
        let (mut sink, mut events) = events();
        let event = || Event::Text(b"x".to_vec());
        for _ in 0..BACKLOG {
            assert!(sink(event()).is_continue());
        }
        assert!(sink(event()).is_break());
        drop(sink);
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for _ in 0..BACKLOG {
                assert!(matches!(events.next().await, Ok(Event::Text(_))));
            }
            assert!(matches!(events.next().await, Err(Backlog::Full)));
        });
    }

    #[test]
    fn a_client_that_left_ends_the_job() {
        let (mut sink, mut events) = events();
        assert!(sink(Event::Progress { evaluated: 1 }).is_continue());
        let runtime = Builder::new_current_thread().build().unwrap();
        assert!(matches!(runtime.block_on(events.next()), Ok(Event::Progress { .. })));
        drop(events);
        assert!(sink(Event::Progress { evaluated: 2 }).is_break());
    }
}
