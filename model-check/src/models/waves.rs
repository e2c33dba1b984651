//! `terrace_backend::moe::waves`: every entry of every wave is computed once, by a thread that sees
//! what thread 0 prepared; memory that an empty wave has freed is not used any more; and all threads
//! learn alike how the node ended.

use super::{Cell, Model};
use crate::waves::{Next, Waves};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

pub const MODELS: &[Model] = &[
    Model::preempted("waves-two-threads", 3, || nodes(2, 4, &[&[Wave::Of(2), Wave::Last(1)]])),
    Model::preempted("waves-empty", 3, || nodes(2, 1, &[&[Wave::Of(1), Wave::Of(0), Wave::Last(1)]])),
    Model::preempted("waves-failing", 3, || nodes(2, 4, &[&[Wave::Of(1), Wave::Failed]])),
    Model::preempted("waves-three-threads", 2, || nodes(3, 4, &[&[Wave::Of(2), Wave::Last(1)]])),
    Model::preempted("waves-two-nodes", 2, || {
        nodes(2, 1, &[&[Wave::Of(1), Wave::Of(0), Wave::Last(1)], &[Wave::Last(1)]])
    }),
];

#[derive(Clone, Copy)]
enum Wave {
    /// So many entries, and another wave follows.
    Of(usize),
    Last(usize),
    Failed,
}

struct Shared {
    waves: Waves<usize>,
    /// Memory that entries are computed from, as slots of the arena are.
    places: Vec<Cell>,
    /// How often each entry was computed, by its number.
    computed: [Cell; 4],
}

impl Shared {
    fn compute(&self, entries: &[usize], next_task: &AtomicUsize) {
        while let Some(&entry) = entries.get(next_task.fetch_add(1, Ordering::Relaxed)) {
            assert_eq!(self.places[entry % self.places.len()].get(), entry, "the place holds another entry");
            let computed = &self.computed[entry];
            computed.set(computed.get() + 1);
        }
    }
}

fn nodes(threads: usize, places: usize, nodes: &'static [&'static [Wave]]) {
    let shared = Arc::new(Shared {
        waves: Waves::default(),
        places: (0..places).map(|_| Cell::default()).collect(),
        computed: Default::default(),
    });
    let mut entry = 0;
    for &waves in nodes {
        let followers: Vec<_> = (1..threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                // SAFETY: called once by each other thread, and joined before the next node.
                thread::spawn(move || unsafe {
                    shared.waves.follow(threads, |entries, next| shared.compute(entries, next))
                })
            })
            .collect();
        let mut rest = waves.iter();
        let publish = |entries: &mut Vec<usize>| {
            let (count, next) = match rest.next().expect("a wave after the last") {
                Wave::Of(count) => (*count, Next::More),
                Wave::Last(count) => (*count, Next::Last),
                Wave::Failed => (0, Next::Failed),
            };
            for _ in 0..count {
                shared.places[entry % places].set(entry);
                entries.push(entry);
                entry += 1;
            }
            next
        };
        let mut began = 0;
        // SAFETY: as for `follow`.
        let end = unsafe {
            shared.waves.lead(threads, publish, || began += 1, |entries, next| shared.compute(entries, next))
        };
        assert!(rest.next().is_none() && began == 1);
        for follower in followers {
            assert_eq!(follower.join().unwrap(), end, "threads disagree about the end");
        }
    }
    assert!((0..entry).all(|entry| shared.computed[entry].get() == 1), "not computed once");
}
