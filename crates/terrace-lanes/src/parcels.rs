//! Experts on their way to a lane: thread 0 hands over where their bytes are in main memory, and
//! learns when these have been copied and may be evicted.

use super::handover::GONE_CHECK;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::PoisonError;
use terrace_backend::MATRICES;

/// An expert whose bytes are in main memory.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    /// The sender's number for it.
    pub id: usize,
    /// Its place among the job's experts to be copied.
    pub sent: usize,
    /// The addresses of its matrices, in the order of the lane's slots.
    pub addresses: [usize; MATRICES],
}

#[derive(Default)]
struct State {
    ready: VecDeque<Parcel>,
    copied: Vec<usize>,
    /// True if there may be more.
    open: bool,
    /// True if the lane's thread reads a parcel's bytes.
    reading: bool,
    /// True if the lane's thread takes no more.
    ended: bool,
    /// True if thread 0 sends no more, whatever happens.
    given_up: bool,
}

/// The parcels of a lane's job.
#[derive(Default)]
pub struct Parcels {
    state: Mutex<State>,
    changed: Condvar,
}

impl Parcels {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Thread 0 begins a job.
    pub fn open(&self) {
        let mut state = self.state();
        state.ready.clear();
        state.copied.clear();
        (state.open, state.ended, state.given_up) = (true, false, false);
    }

    /// Thread 0 hands one over. Its bytes stay until it is among the [copied](Self::copied) ones, or
    /// until the parcels have been [given up](Self::give_up).
    pub fn send(&self, parcel: Parcel) {
        let mut state = self.state();
        if !state.given_up {
            state.ready.push_back(parcel);
            self.changed.notify_all();
        }
    }

    /// Thread 0 has sent all.
    pub fn close(&self) {
        self.state().open = false;
        self.changed.notify_all();
    }

    /// Thread 0 takes back what was not taken, and waits until no bytes are read any more. Between
    /// [`Parcels::take`] and [`Parcels::put_down`], the thread of a device that may be lost does
    /// nothing that could stop it.
    pub fn give_up(&self) {
        let mut state = self.state();
        (state.open, state.given_up) = (false, true);
        state.ready.clear();
        self.changed.notify_all();
        while state.reading {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Appends the numbers of the parcels that were copied since the last call, after waiting for the
    /// first of them if asked. Waiting ends when `gone` becomes true. Returns false if the lane's
    /// thread takes no more, or is gone.
    pub fn copied(&self, into: &mut Vec<usize>, wait: bool, gone: impl Fn() -> bool) -> bool {
        let mut state = self.state();
        while wait && state.copied.is_empty() && !state.ended && !gone() {
            (state, _) = self.changed.wait_timeout(state, GONE_CHECK).unwrap_or_else(PoisonError::into_inner);
        }
        into.append(&mut state.copied);
        !state.ended && !gone()
    }

    /// The lane's thread has ended the job.
    pub fn end(&self) {
        let mut state = self.state();
        (state.open, state.reading, state.ended) = (false, false, true);
        self.changed.notify_all();
    }

    /// The lane's thread takes the next one, after waiting for it if asked, and reads its bytes until
    /// [`Parcels::put_down`]. `None` if there is none now, or none any more.
    pub fn take(&self, wait: bool) -> Option<Parcel> {
        let mut state = self.state();
        loop {
            if let Some(parcel) = state.ready.pop_front() {
                state.reading = true;
                return Some(parcel);
            }
            if !wait || !state.open {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The lane's thread has read the bytes of the parcel that it took.
    pub fn put_down(&self, id: usize) {
        let mut state = self.state();
        state.reading = false;
        state.copied.push(id);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn parcel(id: usize) -> Parcel {
        Parcel { id, sent: id, addresses: [0; MATRICES] }
    }

    #[test]
    fn all_parcels_arrive_in_order() {
        let parcels = Parcels::default();
        parcels.open();
        std::thread::scope(|scope| {
            let lane = scope.spawn(|| {
                let mut got = Vec::new();
                while let Some(parcel) = parcels.take(true) {
                    got.push(parcel.id);
                    parcels.put_down(parcel.id);
                }
                got
            });
            let mut copied = Vec::new();
            for id in 0..100 {
                parcels.send(parcel(id));
                if id % 10 == 9 {
                    assert!(parcels.copied(&mut copied, true, || false));
                }
            }
            parcels.close();
            assert_eq!(lane.join().unwrap(), (0..100).collect::<Vec<_>>());
            parcels.copied(&mut copied, false, || false);
            assert_eq!(copied, (0..100).collect::<Vec<_>>());
        });
        assert!(parcels.take(true).is_none());
    }

    #[test]
    fn giving_up_waits_for_the_reader_alone() {
        let parcels = Parcels::default();
        parcels.open();
        parcels.send(parcel(0));
        parcels.send(parcel(1));
        let read = AtomicUsize::new(0);
        let taken = parcels.take(false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(GONE_CHECK);
                read.store(1, Ordering::Relaxed);
                parcels.put_down(taken.id);
            });
            parcels.give_up();
            assert_eq!(read.load(Ordering::Relaxed), 1);
        });
        assert!(parcels.take(true).is_none(), "the other one was taken back");
        let mut copied = Vec::new();
        assert!(!parcels.copied(&mut copied, true, || true));
        assert_eq!(copied, [0]);
        assert!(!parcels.copied(&mut copied, true, || true), "a lane that is gone is not waited for");
        parcels.end();
        assert!(!parcels.copied(&mut copied, true, || false), "nor one that has ended");
        assert_eq!(copied, [0]);
    }
}
