//! The order in which threads compute the tasks of a wave, and what a task waits for.
//! `model-check` runs this file.

use crate::block::MATRICES;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::sync::{hint, spins, thread};
use std::ffi::c_void;

/// Number of turns that a thread spins while waiting for another's task before it yields its core.
const SPINS: u32 = spins(2_000);

/// Parts of an expert that have become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index into the routing's touched experts.
    pub item: u32,
    /// True if the first products and the activation can be computed.
    pub first: bool,
    /// True if the last product can be computed.
    pub down: bool,
}

/// An expert's progress.
#[derive(Default)]
pub struct Item {
    /// Its matrices, first those of the first products in order, then the last; null until they
    /// arrive.
    pub weights: [AtomicPtr<c_void>; MATRICES],
    /// True if these are its copies in fewer bits.
    pub low: AtomicBool,
    /// Tasks left in each stage: first products, activation, last product.
    pub left: [AtomicU32; 3],
    /// Its turn in the order of computing, which determines its scratch.
    pub turn: AtomicUsize,
}

/// A node's experts, and how their tasks depend on each other.
#[derive(Clone, Copy)]
pub struct Sequence<'a> {
    /// Tasks of an expert's stages.
    pub tasks: [usize; 3],
    /// Number of threads that take turns.
    pub threads: usize,
    /// Number of experts with scratch at the same time: the expert with turn `t` has the scratch of
    /// the one with turn `t - slots`.
    pub slots: usize,
    pub items: &'a [Item],
    /// Experts by turn.
    pub order: &'a [AtomicU32],
}

impl Sequence<'_> {
    /// Claims tasks until there are none left. `run` computes a task: its stage, the expert, and
    /// the task's number within the stage.
    ///
    /// In step `s` of the sequence, entry `s` computes its first products, entry `s-1` its
    /// activation, and entry `s-2` its last product, so neighbours in the sequence do not depend on
    /// each other. A task depends only on earlier ones, which some thread has already claimed, so
    /// waiting always ends.
    pub fn compute(&self, entries: &[Entry], next_task: &AtomicUsize, run: impl Fn(usize, usize, usize)) {
        let tasks = self.tasks;
        let per_step: usize = tasks.iter().sum();
        let end = (entries.len() + 2) * per_step;
        if entries.is_empty() {
            return;
        }
        loop {
            let claimed = next_task.fetch_add(1, Ordering::Relaxed);
            if claimed >= end {
                return;
            }
            let (step, mut task) = (claimed / per_step, claimed % per_step);
            let mut stage = 0;
            while task >= tasks[stage] {
                task -= tasks[stage];
                stage += 1;
            }
            let Some(entry) = step.checked_sub(stage).and_then(|at| entries.get(at)) else { continue };
            let wanted = if stage == 2 { entry.down } else { entry.first };
            if !wanted {
                continue;
            }
            let item = entry.item as usize;
            self.wait_until_ready(stage, item);
            run(stage, item, in_stretches(task, tasks[stage], self.threads));
            // Release: a thread that finds no task left also sees what the tasks wrote.
            self.items[item].left[stage].fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for what the tasks of a stage depend on.
    fn wait_until_ready(&self, stage: usize, item: usize) {
        if stage > 0 {
            return wait_for(&self.items[item], stage - 1);
        }
        let turn = self.items[item].turn.load(Ordering::Relaxed);
        if turn >= self.slots {
            // The scratch belonged to another expert, whose last product must be done.
            let before = self.order[turn - self.slots].load(Ordering::Relaxed);
            wait_for(&self.items[before as usize], 2);
        }
    }
}

/// The task that the `turn`-th claim gets: such that threads that take turns have a stretch of the `tasks` each. A
/// processor's own prefetching runs past the weights of a task, and what it fetches there is then the same
/// thread's.
fn in_stretches(turn: usize, tasks: usize, threads: usize) -> usize {
    let (thread, at) = (turn % threads, turn / threads);
    // The first ones have a task more, if they do not divide evenly.
    thread * (tasks / threads) + thread.min(tasks % threads) + at
}

/// Waits until a stage of an expert is done.
pub fn wait_for(item: &Item, stage: usize) {
    let mut spun = 0;
    // Acquire pairs with the release of the stage's last task.
    while item.left[stage].load(Ordering::Acquire) > 0 {
        spun += 1;
        if spun < SPINS {
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}
