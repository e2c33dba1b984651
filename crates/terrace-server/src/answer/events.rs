//! The events of a job, from the engine's worker to a client that may read slowly or not at all.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_serving::{Event, Sink};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum number of events that wait for a client: at most three per token, so about 2 MiB. The
/// worker never waits; with more events waiting, the job ends.
const BACKLOG: usize = 16_384;

/// The events of a job that are still to come.
pub struct Events {
    events: Receiver<Event>,
    /// True if the job ended because too many events waited.
    full: Arc<AtomicBool>,
    /// The next one, if it was looked at.
    next: Option<Event>,
}

/// Why there are no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// Too many events waited.
    Full,
    /// The worker has dropped the sink, and all events were read.
    Read,
}

/// Creates the sink that takes a job's events, and the receiver that returns them.
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
    (Box::new(sink), Events { events, full, next: None })
}

impl Events {
    /// Waits for the next event.
    ///
    /// # Errors
    /// There is none, and none will come.
    pub async fn next(&mut self) -> Result<Event, Backlog> {
        if let Some(event) = self.next.take() {
            return Ok(event);
        }
        self.events.recv().await.ok_or_else(|| {
            // The flag was set before the sink was dropped, so it is visible now.
            if self.full.load(Ordering::Relaxed) { Backlog::Full } else { Backlog::Read }
        })
    }

    /// The next event, if it is there already and `wanted`.
    pub fn waiting(&mut self, wanted: fn(&Event) -> bool) -> Option<Event> {
        if self.next.is_none() {
            self.next = self.events.try_recv().ok();
        }
        self.next.take_if(|event| wanted(event))
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
