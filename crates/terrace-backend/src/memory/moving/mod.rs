//! Mapped weights move into memory of the process while the model answers.
//!
//! A mapped model answers at once. But its pages lie scattered in memory, and processors may read them slower than large
//! pages, and its weights are in rows, of which kernels read some types slower than interleaved ones. So a thread copies
//! the weights, and has each copy take the place of its pages, at the same address: nobody who computes from them notices.
//! Interleaved weights are put into place between graphs.
//!
//! That takes a core and memory's rate for a while, and may halve the rate of tokens meanwhile. So it is done while nothing
//! computes, as before the first question and between two, or once computing has taken so long that it pays.

mod mover;
mod pages;
mod shared;

use crate::memory::file_map::FileMaps;
use crate::memory::interleaved::InterleavedWeights;
use crate::memory::read_ahead::ReadAhead;
use mover::{LEAST_SAMPLE, Mover};
pub use shared::{Candidate, Shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// When mapped weights move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MoveMapped {
    /// While nothing computes, or once it pays; if it makes them faster to read.
    #[default]
    Auto,
    /// At once.
    Now,
    /// Never.
    Off,
}

/// Threads that have something left to move, of all models.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// Returns true if weights of a model may move: otherwise graphs need not say that they are computed.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Acquire) > 0
}

/// A thread that moves weights. Dropping this ends and joins it.
pub struct Moving {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Moving {
    /// Begins, once the files have been read; `None` if nothing is to be done.
    ///
    /// # Errors
    /// The system's: no thread.
    pub fn start(
        when: MoveMapped,
        maps: Arc<FileMaps>,
        ahead: Arc<ReadAhead>,
        candidates: Vec<Candidate>,
        interleaved: Arc<InterleavedWeights>,
    ) -> std::io::Result<Option<Self>> {
        let small = maps.sizes().max().is_none_or(|size| size / 2 < LEAST_SAMPLE);
        if when == MoveMapped::Off || (when == MoveMapped::Auto && small) {
            return Ok(None);
        }
        let shared = Arc::new(Shared::new(interleaved));
        let mover = Mover::new(when, maps, candidates, Arc::clone(&shared));
        // Before the first graph.
        ACTIVE.fetch_add(1, Ordering::Release);
        let thread = std::thread::Builder::new().name("move weights".into()).spawn(move || mover.run(&ahead));
        let thread = thread.inspect_err(|_| _ = ACTIVE.fetch_sub(1, Ordering::Relaxed))?;
        Ok(Some(Self { shared, thread: Some(thread) }))
    }

    /// The state that it shares with those who compute.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread does nothing that could panic, and a panic would need no handling.
            let _ = thread.join();
        }
    }
}
