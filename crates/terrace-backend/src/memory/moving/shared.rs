//! State that the thread that moves weights shares with those who compute.

use super::pages::whole_pages;
use crate::memory::interleaved::InterleavedWeights;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use terrace_kernels::matmul::Interleaving;
use terrace_platform::own_pages::OwnPages;

/// A mapped weight that may be interleaved.
#[derive(Clone, Copy)]
pub struct Candidate {
    pub address: usize,
    pub len: usize,
    pub how: Interleaving,
}

/// A weight that is interleaved, but for its place.
pub(super) struct Ready {
    pub weight: Candidate,
    /// Its whole pages.
    pub pages: OwnPages,
    /// Its bytes before these and after them.
    pub edges: [Vec<u8>; 2],
}

/// State that the thread shares with those who compute.
pub struct Shared {
    stop: AtomicBool,
    gate: Mutex<Gate>,
    interleaved: Arc<InterleavedWeights>,
    /// The number of graphs so far, and the time that they took, in nanoseconds.
    graphs: AtomicU64,
    computed: AtomicU64,
    /// Bytes that are memory of the process.
    moved: AtomicUsize,
    /// The thread has nothing left to do.
    done: AtomicBool,
}

/// State that changes only while no graph is being computed.
#[derive(Default)]
struct Gate {
    /// Graphs that are being computed.
    computing: usize,
    ready: Vec<Ready>,
}

impl Shared {
    pub(super) fn new(interleaved: Arc<InterleavedWeights>) -> Self {
        Self {
            stop: AtomicBool::new(false),
            gate: Mutex::default(),
            interleaved,
            graphs: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            moved: AtomicUsize::new(0),
            done: AtomicBool::new(false),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that have become memory of the process.
    pub fn moved(&self) -> usize {
        self.moved.load(Ordering::Relaxed)
    }

    /// Has the thread end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns true if the thread is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes that the thread has ended by itself. Weights that still wait for their places stay as they are.
    pub(super) fn end(&self) {
        self.gate().ready.clear();
        self.done.store(true, Ordering::Release);
    }

    /// Notes bytes that have become memory of the process.
    pub(super) fn add_moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds a weight that is to be put into its place.
    pub(super) fn add_ready(&self, ready: Ready) {
        self.gate().ready.push(ready);
    }

    /// Puts interleaved weights into their places, if nothing computes. Returns the bytes of those that wait.
    pub(super) fn put_and_count(&self) -> usize {
        let mut gate = self.gate();
        self.put_ready(&mut gate);
        gate.ready.iter().map(|ready| ready.weight.len).sum()
    }

    /// The number of graphs so far, whether one is being computed, and the time that they took.
    pub(super) fn graphs(&self) -> (u64, bool, Duration) {
        let computes = self.gate().computing > 0;
        let computed = Duration::from_nanos(self.computed.load(Ordering::Relaxed));
        (self.graphs.load(Ordering::Relaxed), computes, computed)
    }

    /// The weights that are noted as interleaved.
    #[cfg(test)]
    pub(super) fn interleaved(&self) -> &InterleavedWeights {
        &self.interleaved
    }

    /// Returns true if the thread has ended by itself.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Notes that a graph is prepared and computed until the value is dropped. Interleaved weights are put into their places
    /// before.
    pub fn compute(self: &Arc<Self>, began: Instant) -> Computing {
        let mut gate = self.gate();
        self.put_ready(&mut gate);
        gate.computing += 1;
        Computing { shared: Arc::clone(self), began }
    }

    /// Puts interleaved weights into their places, if nothing computes.
    fn put_ready(&self, gate: &mut Gate) {
        if gate.computing > 0 {
            return;
        }
        for Ready { weight: Candidate { address, len, how }, pages, edges } in gate.ready.drain(..) {
            let inner = whole_pages(address..address + len);
            let put = self.interleaved.add_written(address, len, how, || {
                let [before, after] = &edges;
                // SAFETY: whole pages of the weight, which nothing computes from now, and others read through what it is
                // noted in. Its first and last bytes share pages with other weights that are memory of the process already,
                // and are written to in turns.
                unsafe {
                    pages.replace(inner.start)?;
                    std::ptr::copy_nonoverlapping(before.as_ptr(), address as *mut u8, before.len());
                    std::ptr::copy_nonoverlapping(after.as_ptr(), inner.end as *mut u8, after.len());
                }
                std::io::Result::Ok(())
            });
            match put {
                Ok(()) => _ = self.moved.fetch_add(inner.len(), Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "a weight stays in rows"),
            }
        }
    }
}

/// A graph that is being computed.
pub struct Computing {
    shared: Arc<Shared>,
    began: Instant,
}

impl Drop for Computing {
    fn drop(&mut self) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.computed.fetch_add(nanos, Ordering::Relaxed);
        self.shared.graphs.fetch_add(1, Ordering::Relaxed);
        self.shared.gate().computing -= 1;
    }
}
