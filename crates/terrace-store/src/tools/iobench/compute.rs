//! Computation during the reads: threads that read more memory than the caches hold, as inference
//! does.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Words that the threads share and read in a cycle (128 MiB): more than caches hold.
const WORDS: usize = 16 << 20;
/// Words between two checks of the stop flag.
const STEP: usize = 128 << 10;

struct Shared {
    words: Vec<u64>,
    stop: AtomicBool,
    bytes: AtomicU64,
}

/// Running threads, which end when this is dropped.
pub(super) struct Compute {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    started: Instant,
}

impl Compute {
    /// Starts `threads` threads.
    pub fn start(threads: usize) -> io::Result<Self> {
        // Not zeros, because untouched zero pages all share one page.
        let words = (0..WORDS as u64).collect();
        let shared = Arc::new(Shared { words, stop: AtomicBool::new(false), bytes: AtomicU64::new(0) });
        let mut compute = Self { shared, threads: Vec::new(), started: Instant::now() };
        for number in 0..threads {
            let shared = Arc::clone(&compute.shared);
            let from = number * (WORDS / threads) / STEP;
            let thread = Builder::new().name(format!("terrace-compute-{number}"));
            compute.threads.push(thread.spawn(move || shared.run(from))?);
        }
        compute.started = Instant::now();
        Ok(compute)
    }

    /// Returns the rate of all threads together since the last call (or the start), in 10^9 bytes
    /// per second.
    pub fn gbps(&mut self) -> f64 {
        let bytes = self.shared.bytes.swap(0, Ordering::Relaxed);
        let seconds = self.started.elapsed().as_secs_f64();
        self.started = Instant::now();
        if seconds == 0.0 { 0.0 } else { bytes as f64 / seconds / 1e9 }
    }
}

impl Shared {
    fn run(&self, from: usize) {
        for step in self.words.chunks_exact(STEP).cycle().skip(from) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            black_box(step.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
            self.bytes.fetch_add(8 * STEP as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a computing thread panicked");
            }
        }
    }
}
