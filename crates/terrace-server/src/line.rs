//! Who waits for a slot. The engine has a queue of its own, but would find out only in the end that a client has left it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_engine::serving::Refused;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The line before the slots. It is first come, first served, and whoever goes away leaves it.
pub struct Line {
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    most: usize,
}

/// A slot's worth of the engine, until it is dropped.
pub type Place = OwnedSemaphorePermit;

impl Line {
    /// Before so many slots; at most `most` may wait.
    pub fn new(slots: usize, most: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(slots)), waiting: AtomicUsize::new(0), most }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// As many wait as may, or the line was closed.
    pub async fn enter(&self) -> Result<Place, Refused> {
        if let Ok(place) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = Waiting::begin(self)?;
        Arc::clone(&self.slots).acquire_owned().await.map_err(|_| Refused::Stopped)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Nobody gets a place any more.
    pub fn close(&self) {
        self.slots.close();
    }
}

/// Counts somebody who waits, until it is dropped.
struct Waiting<'l>(&'l Line);

impl<'l> Waiting<'l> {
    fn begin(line: &'l Line) -> Result<Self, Refused> {
        let one_more = |waiting: usize| (waiting < line.most).then_some(waiting + 1);
        match line.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Self(line)),
            Err(waiting) => Err(Refused::Full { waiting }),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn whoever_leaves_makes_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let line = Arc::new(Line::new(1, 1));
            let soon = Duration::from_millis(1);
            let first = line.enter().await.unwrap();
            for _ in 0..3 {
                assert!(timeout(soon, line.enter()).await.is_err(), "it waits, and leaves");
                assert_eq!(line.waiting(), 0);
            }
            let second = tokio::spawn({
                let line = Arc::clone(&line);
                async move { line.enter().await }
            });
            while line.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(line.enter().await.unwrap_err(), Refused::Full { waiting: 1 });
            drop(first);
            let second = second.await.unwrap().unwrap();
            assert_eq!(line.waiting(), 0);
            drop(second);
            line.close();
            assert_eq!(line.enter().await.unwrap_err(), Refused::Stopped);
        });
    }
}
