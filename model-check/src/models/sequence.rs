//! `terrace_backend::moe::fused::sequence`: every task of every expert is run once, after all tasks
//! that it depends on, and no expert's scratch is used by two at a time.

use super::{Cell, Model};
use crate::sequence::{Entry, Item, Sequence, wait_for};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::waves::{Next, Waves};
use loom::thread;
use std::sync::Arc;

pub const MODELS: &[Model] = &[
    Model::preempted("sequence-one-expert", 4, || whole(1, 3, [2, 1, 1])),
    Model::preempted("sequence-two-experts", 3, || whole(2, 3, [2, 1, 1])),
    Model::preempted("sequence-shared-scratch", 2, || whole(4, 3, [1, 1, 1])),
    Model::preempted("sequence-halves", 2, halves),
];

/// Experts with their scratch, which has a cell for each task of a stage.
struct Node {
    tasks: [usize; 3],
    slots: usize,
    items: Vec<Item>,
    order: Vec<AtomicU32>,
    scratch: Vec<[Vec<Cell>; 2]>,
    output: Vec<Vec<Cell>>,
}

impl Node {
    fn new(experts: usize, slots: usize, tasks: [usize; 3]) -> Self {
        let cells = |count| (0..count).map(|_| Cell::default()).collect::<Vec<_>>();
        let node = Self {
            tasks,
            slots,
            items: (0..experts).map(|_| Item::default()).collect(),
            order: (0..experts).map(|_| AtomicU32::new(0)).collect(),
            scratch: (0..slots).map(|_| [cells(tasks[0]), cells(tasks[1])]).collect(),
            output: (0..experts).map(|_| cells(tasks[2])).collect(),
        };
        for item in &node.items {
            for (left, tasks) in item.left.iter().zip(tasks) {
                left.store(tasks as u32, Ordering::Relaxed);
            }
        }
        node
    }

    /// Thread 0: an expert has arrived.
    fn arrive(&self, item: usize) {
        self.items[item].turn.store(item, Ordering::Relaxed);
        self.order[item].store(item as u32, Ordering::Relaxed);
    }

    fn compute(&self, entries: &[Entry], next_task: &AtomicUsize) {
        let (tasks, slots) = (self.tasks, self.slots);
        let sequence = Sequence { tasks, threads: 2, slots, items: &self.items, order: &self.order };
        sequence.compute(entries, next_task, |stage, item, task| {
            let scratch = &self.scratch[self.items[item].turn.load(Ordering::Relaxed) % slots];
            let holds = |cells: &[Cell]| cells.iter().all(|cell| cell.get() == item + 1);
            match stage {
                0 => scratch[0][task].set(item + 1),
                1 => {
                    assert!(holds(&scratch[0]), "first products of another expert");
                    scratch[1][task].set(item + 1);
                }
                _ => {
                    assert!(holds(&scratch[1]), "an activation of another expert");
                    let output = &self.output[item][task];
                    output.set(output.get() + 1);
                }
            }
        });
    }

    /// Waits, as thread 0 does before it gives leases back, and checks that all was computed once.
    fn finish(&self) {
        for (item, output) in self.items.iter().zip(&self.output) {
            wait_for(item, 2);
            assert!(output.iter().all(|cell| cell.get() == 1), "not computed once");
        }
    }
}

/// One wave of whole experts, on two threads.
fn whole(experts: usize, slots: usize, tasks: [usize; 3]) {
    let node = Node::new(experts, slots, tasks);
    (0..experts).for_each(|item| node.arrive(item));
    let entry = |item| Entry { item: item as u32, first: true, down: true };
    let shared = Arc::new((node, (0..experts).map(entry).collect::<Vec<_>>(), AtomicUsize::new(0)));
    let other = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.0.compute(&shared.1, &shared.2))
    };
    shared.0.compute(&shared.1, &shared.2);
    shared.0.finish();
    other.join().unwrap();
}

/// Two waves: an expert's last matrix arrives with the second, together with another expert.
fn halves() {
    let shared = Arc::new((Node::new(2, 3, [1, 1, 1]), Waves::<Entry>::default()));
    let other = {
        let shared = Arc::clone(&shared);
        // SAFETY: one thread leads, this one follows, and there is one node.
        thread::spawn(move || unsafe { shared.1.follow(2, |entries, next| shared.0.compute(entries, next)) })
    };
    let node = &shared.0;
    let mut waves = 0;
    let publish = |entries: &mut Vec<Entry>| {
        waves += 1;
        node.arrive(waves - 1);
        if waves == 1 {
            entries.push(Entry { item: 0, first: true, down: false });
            return Next::More;
        }
        entries.push(Entry { item: 0, first: false, down: true });
        entries.push(Entry { item: 1, first: true, down: true });
        Next::Last
    };
    // SAFETY: as for `follow`.
    let end = unsafe { shared.1.lead(2, publish, || (), |entries, next| node.compute(entries, next)) };
    assert_eq!(end, Next::Last);
    node.finish();
    other.join().unwrap();
}
