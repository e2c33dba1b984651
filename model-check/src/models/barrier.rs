//! `terrace_backend::barrier`: nobody passes before all have come, all pass, and what was written
//! before is seen after.

use super::{Cell, Model};
use crate::barrier::Barrier;
use loom::thread;
use std::sync::Arc;

pub const MODELS: &[Model] = &[
    Model::all("barrier-one-round", || meet(2, 1)),
    Model::preempted("barrier-two-threads", 3, || meet(2, 2)),
    Model::preempted("barrier-three-threads", 2, || meet(3, 1)),
];

/// Threads write a cell of their own, meet, and read all cells.
fn meet(threads: usize, rounds: usize) {
    let shared = Arc::new((Barrier::default(), (0..threads).map(|_| Cell::default()).collect::<Vec<_>>()));
    let part = move |id: usize, shared: &(Barrier, Vec<Cell>)| {
        let (barrier, cells) = shared;
        for round in 1..=rounds {
            cells[id].set(round);
            barrier.wait(threads);
            assert!(cells.iter().all(|cell| cell.get() == round), "a thread passed early");
            if round < rounds {
                barrier.wait(threads);
            }
        }
    };
    let others: Vec<_> = (1..threads)
        .map(|id| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || part(id, &shared))
        })
        .collect();
    part(0, &shared);
    for other in others {
        other.join().unwrap();
    }
}
