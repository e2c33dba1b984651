//! Measuring how fast memory is read.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use terrace_kernels::rates::read;

/// Bytes between two readings of the clock.
const STEP: usize = 1 << 20;

/// Number of rounds. The fastest counts, since other load only makes a round slower.
const ROUNDS: u32 = 3;

/// Returns the bytes per second that `threads` threads together read from `memory`, which must be
/// larger than the caches. Each thread reads a part of its own again and again; all rounds together
/// take `time`.
pub fn read_bandwidth(memory: &[u8], threads: usize, time: Duration) -> f64 {
    (0..ROUNDS).map(|_| one_round(memory, threads, time / ROUNDS)).fold(0.0, f64::max)
}

fn one_round(memory: &[u8], threads: usize, time: Duration) -> f64 {
    let part = memory.len() / threads.max(1);
    if part < STEP {
        return 0.0;
    }
    let start = Barrier::new(threads);
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let parts = memory.chunks_exact(part).take(threads);
        let running: Vec<_> = parts.map(|part| scope.spawn(|| reader(part, &start, time))).collect();
        running.into_iter().map(|thread| thread.join().expect("a sum does not panic")).collect()
    });
    rates.iter().sum()
}

/// Returns the bytes per second of one thread.
fn reader(part: &[u8], start: &Barrier, time: Duration) -> f64 {
    start.wait();
    let started = Instant::now();
    let mut bytes = 0;
    for step in part.chunks_exact(STEP).cycle() {
        black_box(read(step));
        bytes += STEP;
        if started.elapsed() >= time {
            break;
        }
    }
    bytes as f64 / started.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_any_number_of_threads() {
        let memory = vec![1u8; 8 << 20];
        for threads in [1, 2, 3] {
            assert!(read_bandwidth(&memory, threads, Duration::from_millis(1)) > 0.0);
        }
        assert_eq!(read_bandwidth(&memory, 64, Duration::from_millis(1)), 0.0, "parts too small to tell");
    }
}
