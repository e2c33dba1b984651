//! Hands work from thread 0 to the threads of a node: in waves, each with what has become ready
//! since the last one.
//!
//! There are two waves, used in turns. Thread 0 fills one while the others compute the other, and
//! the barrier between them is all that threads wait for. `model-check` runs this file.

use crate::barrier::Barrier;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The step after a wave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// Another wave.
    #[default]
    More,
    /// Nothing: it is the node's last.
    Last,
    /// Nothing, because the node has failed; the wave is not computed. Kept with the wave, because
    /// thread 0 may fail on the next one before the other threads have looked at this one.
    Failed,
}

/// Contents of a wave. Thread 0 writes it before the barrier after which all threads read it.
struct Filled<T> {
    entries: Vec<T>,
    next: Next,
}

struct Wave<T> {
    filled: UnsafeCell<Filled<T>>,
    /// Deals the wave's tasks to the threads.
    next_task: AtomicUsize,
}

/// The waves of one node after the other.
pub struct Waves<T> {
    waves: [Wave<T>; 2],
    barrier: Barrier,
}

impl<T> Default for Waves<T> {
    fn default() -> Self {
        let wave = || Wave {
            filled: UnsafeCell::new(Filled { entries: Vec::new(), next: Next::More }),
            next_task: AtomicUsize::new(0),
        };
        Self { waves: [wave(), wave()], barrier: Barrier::default() }
    }
}

// SAFETY: entries are written by the one thread that leads and read by all, and a barrier lies
// between the two (see `fill` and `compute`).
unsafe impl<T: Send + Sync> Sync for Waves<T> {}

impl<T> Waves<T> {
    /// Thread 0's part of a node of `threads` threads. `publish` fills an empty wave, after waiting
    /// if necessary; `meanwhile` is called once, after the first barrier, while the other threads
    /// compute; `compute` claims tasks of a wave by its counter until there are none left. Returns
    /// how the node has ended, when this thread finds nothing left to do: others may still compute.
    ///
    /// # Safety
    /// The other `threads - 1` threads call [`Waves::follow`] once. All threads have returned from
    /// the previous node's calls before any thread begins the next.
    pub unsafe fn lead(
        &self,
        threads: usize,
        mut publish: impl FnMut(&mut Vec<T>) -> Next,
        meanwhile: impl FnOnce(),
        compute: impl Fn(&[T], &AtomicUsize),
    ) -> Next {
        let mut turn = 0;
        self.fill(turn, &mut publish);
        self.barrier.wait(threads);
        meanwhile();
        loop {
            let next = self.compute(turn, &compute);
            if next != Next::More {
                return next;
            }
            turn ^= 1;
            self.fill(turn, &mut publish);
            self.barrier.wait(threads);
        }
    }

    /// The part of any other thread.
    ///
    /// # Safety
    /// As [`Waves::lead`].
    pub unsafe fn follow(&self, threads: usize, compute: impl Fn(&[T], &AtomicUsize)) -> Next {
        let mut turn = 0;
        loop {
            self.barrier.wait(threads);
            let next = self.compute(turn, &compute);
            if next != Next::More {
                return next;
            }
            turn ^= 1;
        }
    }

    fn fill(&self, turn: usize, publish: &mut impl FnMut(&mut Vec<T>) -> Next) {
        let wave = &self.waves[turn];
        wave.filled.with_mut(|filled| {
            // SAFETY: the threads that computed this wave have passed a barrier since, or have
            // returned from the previous node; none reads it before the next barrier.
            let filled = unsafe { &mut *filled };
            filled.entries.clear();
            filled.next = publish(&mut filled.entries);
        });
        wave.next_task.store(0, Ordering::Relaxed);
    }

    fn compute(&self, turn: usize, compute: impl Fn(&[T], &AtomicUsize)) -> Next {
        let wave = &self.waves[turn];
        wave.filled.with(|filled| {
            // SAFETY: thread 0 filled it before the barrier that this thread has just passed. It
            // fills the other wave next, and this one after a barrier for which it needs this
            // thread.
            let filled = unsafe { &*filled };
            if filled.next != Next::Failed {
                compute(&filled.entries, &wave.next_task);
            }
            filled.next
        })
    }
}
