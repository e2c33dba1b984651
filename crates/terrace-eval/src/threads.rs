//! Runs work between graphs on threads that are idle then.

use std::sync::{Mutex, PoisonError};

/// Runs each job once, on `threads` threads, in no particular order.
pub fn on_threads<J: Send>(threads: usize, jobs: Vec<J>, work: impl Fn(J) + Sync) {
    let threads = threads.clamp(1, jobs.len().max(1));
    let jobs = Mutex::new(jobs.into_iter());
    // The lock only guards taking a job: a panic elsewhere leaves the iterator intact.
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(job) = next() {
            work(job);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_done_once() {
        for (threads, count) in [(1, 5), (3, 100), (16, 3), (4, 0)] {
            let mut done = vec![0; count];
            on_threads(threads, done.iter_mut().collect(), |place| *place += 1);
            assert!(done.iter().all(|&n| n == 1), "{threads} threads: {done:?}");
        }
    }
}
