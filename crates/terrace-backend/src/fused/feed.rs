//! Thread 0's part of a block: asking the store for experts, and handing out what arrives.
//!
//! Experts come in portions, each a fetch of its own. A decode's experts are one portion as a rule. Those of a prefill can
//! be more than the slots hold: then a few portions are under way at once, and the one that is computed makes room for
//! the next. What is asked for, and when, depends on the routing and the sizes alone, not on when the disk answers, so
//! that a replay can count the same.

use super::block::{Block, MATRICES};
use super::work::{Entry, Item};
use crate::error::BackendError;
use crate::routing::Routing;
use crate::trace::TraceRecorder;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use terrace_store::{BlockId, Fetch, Ready, Store};

/// Portions under way at once at most.
const PORTIONS: usize = 4;

/// The expert's blocks, in the order of the block's matrices.
pub fn blocks_of(block: &Block, expert: u32) -> impl Iterator<Item = BlockId> {
    // SAFETY: the layout outlives the graph's call.
    block.matrices().map(move |matrix| unsafe { (*matrix.tensor).block(expert) })
}

/// Experts that were asked for together.
#[derive(Default)]
struct Portion {
    fetch: Fetch,
    /// The first, in the order of asking, and how many.
    from: usize,
    items: usize,
    /// Experts handed out as a whole.
    handed: usize,
    /// The wave that the last of them was handed out in.
    last_wave: usize,
}

/// How a block's experts are asked for.
pub struct Feed {
    store: *mut Store,
    /// Null when nothing records.
    recorder: *mut TraceRecorder,
    stop: *const AtomicBool,
    /// Under way, oldest first, and used ones for their memory.
    portions: VecDeque<Portion>,
    spare: Vec<Portion>,
    /// Experts asked for so far, and the size of a portion.
    asked: usize,
    portion: usize,
    /// For each touched expert: which of its matrices are there, as bits.
    here: Vec<u8>,
    blocks: Vec<BlockId>,
    /// Waves published in this node; whether the one before handed out nothing.
    wave: usize,
    quiet: bool,
    /// Experts that have got a turn.
    turns: usize,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            store: std::ptr::null_mut(),
            recorder: std::ptr::null_mut(),
            stop: std::ptr::null(),
            portions: VecDeque::with_capacity(PORTIONS),
            spare: (0..PORTIONS).map(|_| Portion::default()).collect(),
            asked: 0,
            portion: 1,
            here: Vec::new(),
            blocks: Vec::new(),
            wave: 0,
            quiet: true,
            turns: 0,
        }
    }
}

impl Feed {
    /// See [`super::FusedLane::begin`].
    pub fn begin(&mut self, store: &mut Store, recorder: Option<&mut TraceRecorder>, stop: &AtomicBool) {
        self.store = store;
        self.recorder = recorder.map_or(std::ptr::null_mut(), |recorder| recorder);
        self.stop = stop;
    }

    /// See [`super::FusedLane::end`].
    pub fn end(&mut self, store: &mut Store) {
        while self.give_back(store) {}
        self.store = std::ptr::null_mut();
        self.recorder = std::ptr::null_mut();
        self.stop = std::ptr::null();
    }

    /// The flag that ends the run.
    pub const fn stop(&self) -> *const AtomicBool {
        self.stop
    }

    /// Ends the oldest portion; false if there is none.
    fn give_back(&mut self, store: &mut Store) -> bool {
        let Some(mut portion) = self.portions.pop_front() else { return false };
        store.release(&mut portion.fetch);
        self.spare.push(portion);
        true
    }

    /// Begins a block: all threads have left the one before, whose leases can go.
    pub fn start(&mut self, block: &Block, routing: &Routing) -> Result<(), BackendError> {
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &mut *self.store };
        while self.give_back(store) {}
        // SAFETY: null, or lent by `begin`; used by thread 0 only.
        if let Some(recorder) = unsafe { self.recorder.as_mut() } {
            recorder.block(blocks_of(block, 0), block.experts, routing);
        }
        let touched = routing.touched().len();
        self.here.clear();
        self.here.resize(touched, 0);
        (self.asked, self.wave, self.quiet, self.turns) = (0, 0, true, 0);
        let bundle = blocks_of(block, 0).map(|id| store.slot_size(id).bytes()).sum::<u64>().max(1);
        self.portion = portion(store.stats().budget.bytes(), bundle, touched);
        while self.asked < touched && self.portions.len() < PORTIONS {
            if !self.ask(block, routing, store)? {
                break;
            }
        }
        Ok(())
    }

    /// Asks for the next portion; false if there is no room for any of it.
    fn ask(&mut self, block: &Block, routing: &Routing, store: &mut Store) -> Result<bool, BackendError> {
        let matrices = block.matrices().count();
        let rest = &routing.touched()[self.asked..];
        self.blocks.clear();
        for &expert in &rest[..rest.len().min(self.portion)] {
            self.blocks.extend(blocks_of(block, expert));
        }
        let Some(mut portion) = self.spare.pop() else { return Ok(false) };
        let accepted = match store.start(&mut portion.fetch, &self.blocks) {
            Ok(accepted) => accepted / matrices,
            Err(error) => {
                self.spare.push(portion);
                return Err(error.into());
            }
        };
        if accepted == 0 {
            store.release(&mut portion.fetch);
            self.spare.push(portion);
            return Ok(false);
        }
        (portion.from, portion.items, portion.handed, portion.last_wave) = (self.asked, accepted, 0, 0);
        self.asked += accepted;
        self.portions.push_back(portion);
        Ok(true)
    }

    /// Collects what is there by now, waiting for the first of it, and says whether that was the last.
    pub fn publish(
        &mut self,
        block: &Block,
        routing: &Routing,
        state: State<'_>,
        entries: &mut Vec<Entry>,
    ) -> Result<bool, BackendError> {
        // SAFETY: lent by `begin` for the run.
        let store = unsafe { &mut *self.store };
        let touched = routing.touched().len();
        self.go_on(block, routing, store)?;
        self.collect(block, state, entries, store)?;
        while entries.is_empty() {
            if let Some(waiting) = self.portions.iter_mut().find(|portion| !portion.fetch.is_exhausted()) {
                let (from, items) = (waiting.from, waiting.items);
                let Some(ready) = store.next(&mut waiting.fetch)? else { continue };
                self.arrived(block, from, items, ready, state, entries);
                self.collect(block, state, entries, store)?;
            } else if self.quiet {
                // Nothing is used by anyone, and yet there is no room.
                // SAFETY: the layout outlives the graph's call.
                let tensor = unsafe { (*block.down.tensor).name.clone() };
                return Err(BackendError::NoRoom { tensor });
            } else {
                // Others may still compute from what has to go. An empty wave: when its barrier is passed, they are through.
                break;
            }
        }
        self.quiet = entries.is_empty();
        self.wave += 1;
        let handed = self.portions.iter().all(|portion| portion.handed == portion.items);
        Ok(self.asked == touched && handed)
    }

    /// Lets computed portions go, and asks for as many others.
    fn go_on(&mut self, block: &Block, routing: &Routing, store: &mut Store) -> Result<(), BackendError> {
        let touched = routing.touched().len();
        while self.asked < touched {
            // The others may be at the wave before this one; not if that had nothing to compute.
            let through = if self.quiet { self.wave } else { self.wave.saturating_sub(1) };
            let computed = self
                .portions
                .front()
                .is_some_and(|portion| portion.handed == portion.items && portion.last_wave < through);
            if computed {
                self.give_back(store);
            } else if !self.portions.is_empty() {
                return Ok(());
            }
            if !self.ask(block, routing, store)? && self.portions.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes everything that has arrived, without waiting.
    fn collect(
        &mut self,
        block: &Block,
        state: State<'_>,
        entries: &mut Vec<Entry>,
        store: &mut Store,
    ) -> Result<(), BackendError> {
        for at in 0..self.portions.len() {
            loop {
                let portion = &mut self.portions[at];
                let (from, items) = (portion.from, portion.items);
                let Some(ready) = store.try_next(&mut portion.fetch)? else { break };
                self.arrived(block, from, items, ready, state, entries);
            }
        }
        Ok(())
    }

    /// Notes a matrix of an expert, and hands out what can be computed now.
    fn arrived(
        &mut self,
        block: &Block,
        from: usize,
        items: usize,
        ready: Ready,
        state: State<'_>,
        entries: &mut Vec<Entry>,
    ) {
        let matrices = block.matrices().count();
        let (within, matrix) = (ready.index / matrices, ready.index % matrices);
        if within >= items {
            // Of an expert that found room for a part only: it comes again with the next portion.
            return;
        }
        let index = from + within;
        let item = &state.items[index];
        // Relaxed: a barrier follows before anybody reads it.
        item.weights[matrix].store(ready.data.cast_mut().cast(), Ordering::Relaxed);
        let before = self.here[index];
        let now = before | 1 << matrix;
        self.here[index] = now;
        let all_first = (1u8 << block.first.len()) - 1;
        let all = (1u8 << matrices) - 1;
        let has_first = |bits: u8| bits & all_first == all_first;
        let entry = Entry {
            item: u32::try_from(index).expect("experts are counted in 32 bits"),
            // Where experts take turns with the scratch, they come as a whole.
            first: if state.halves { has_first(now) && !has_first(before) } else { now == all },
            down: now == all,
        };
        if entry.first {
            item.turn.store(self.turns, Ordering::Relaxed);
            state.order[self.turns].store(entry.item, Ordering::Relaxed);
            self.turns += 1;
        }
        if entry.first || entry.down {
            // The first half may be in this wave, too.
            match entries.iter_mut().find(|other| other.item == entry.item) {
                Some(other) => other.down |= entry.down,
                None => entries.push(entry),
            }
        }
        if entry.down
            && let Some(portion) = self.portions.iter_mut().find(|portion| portion.from == from)
        {
            portion.handed += 1;
            portion.last_wave = self.wave;
        }
    }
}

/// The experts' state that is handed to the threads.
#[derive(Clone, Copy)]
pub struct State<'a> {
    pub items: &'a [Item],
    /// Experts by turn.
    pub order: &'a [AtomicU32],
    /// An expert's first products may be computed before its last matrix is there.
    pub halves: bool,
}

/// Experts of a portion: all, if they take half of the slots at most; else what [`PORTIONS`] of them leave each other.
fn portion(slots: u64, bundle: u64, touched: usize) -> usize {
    let fit = |bytes: u64| usize::try_from(bytes / bundle).unwrap_or(usize::MAX);
    if fit(slots / 2) >= touched {
        return touched.max(1);
    }
    fit(slots / PORTIONS as u64).max(1)
}

const _: () = assert!(MATRICES < 8, "matrices that are there are counted in the bits of a byte");
