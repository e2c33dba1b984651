//! Distribution of a node's tasks to threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A counter in a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub struct Claimed(AtomicUsize);

impl Claimed {
    pub fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }
}

/// A thread's way through the tasks of a node: its own stretch first, then what others have left. A processor's own
/// prefetching runs past the weights of a task; what it fetches there is the same thread's in a stretch, and
/// mostly another thread's where they take turns.
pub struct Turns<'a> {
    /// By stretch, the number of its tasks that are claimed.
    claimed: &'a [Claimed],
    /// The stretch that it is at.
    stretch: usize,
    /// Stretches that it has not finished.
    left: usize,
}

impl<'a> Turns<'a> {
    /// Those of thread `ith`; there is a stretch for each of the counters.
    pub const fn of(ith: usize, claimed: &'a [Claimed]) -> Self {
        Self { claimed, stretch: ith % claimed.len(), left: claimed.len() }
    }

    /// Claims one of `tasks`. `None` if none is left.
    pub fn claim(&mut self, tasks: usize) -> Option<usize> {
        let stretches = self.claimed.len();
        let start = |stretch: usize| tasks * stretch / stretches;
        while self.left > 0 {
            let Claimed(count) = &self.claimed[self.stretch];
            let task = start(self.stretch) + count.fetch_add(1, Ordering::Relaxed);
            if task < start(self.stretch + 1) {
                return Some(task);
            }
            self.stretch = (self.stretch + 1) % stretches;
            self.left -= 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every task is claimed once, by any number of threads in any order, and a thread alone with its stretch
        /// gets it in one piece.
        #[test]
        fn every_task_is_claimed_once(
            stretches in 1usize..6, tasks in 0usize..50, order in prop::collection::vec(0usize..8, 0..200),
        ) {
            let mut claimed: Vec<Claimed> = (0..stretches).map(|_| Claimed::default()).collect();
            for round in 0..2 {
                let mut threads: Vec<Turns<'_>> = (0..8).map(|ith| Turns::of(ith, &claimed)).collect();
                let mut count = vec![0; tasks];
                for &thread in order.iter().chain(&[0; 51]) {
                    if let Some(task) = threads[thread].claim(tasks) {
                        count[task] += 1;
                    }
                }
                prop_assert!(count.iter().all(|count| *count == 1), "round {round}: {count:?}");
                claimed.iter_mut().for_each(Claimed::reset);
            }
            let mut alone = Turns::of(1, &claimed);
            let first: Vec<_> = (0..tasks / stretches).map_while(|_| alone.claim(tasks)).collect();
            prop_assert!(first.windows(2).all(|pair| pair[1] == pair[0] + 1), "{first:?}");
        }
    }
}
