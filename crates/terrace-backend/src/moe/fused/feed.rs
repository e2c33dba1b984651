//! Thread 0's part of a block: asking the store for experts, and handing out what arrives.

use super::lookahead::Lookahead;
use super::node::FusedBlock;
use super::work::{Entry, State, Work};
use crate::block::{Block, MATRICES};
use crate::error::BackendError;
use crate::hot::Lanes;
use crate::observe::foretold::Foretold;
use crate::observe::observer::RoutingObserver;
use crate::routing::Routing;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_ggml::Tensor;
use terrace_store::{Arrived, Bundles, Computing, Store};

/// How a block's experts are asked for.
pub struct Feed {
    store: *mut Store,
    observer: *mut RoutingObserver,
    /// Null if nothing computes beside the CPU.
    lanes: *mut Lanes,
    /// Whether a lane computes for this node.
    beside: bool,
    stop: *const AtomicBool,
    bundles: Bundles,
    /// The experts that are asked for, all but those of the lane, and which of the touched ones they are.
    wanted: Vec<u32>,
    touched: Vec<usize>,
    /// For each touched expert: which of its matrices are there, as bits.
    here: Vec<u8>,
    /// Waves published in this node; whether the one before handed out nothing.
    wave: u64,
    quiet: bool,
    /// Experts that have got a turn.
    turns: usize,
    lookahead: Lookahead,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            store: std::ptr::null_mut(),
            observer: std::ptr::null_mut(),
            lanes: std::ptr::null_mut(),
            beside: false,
            stop: std::ptr::null(),
            bundles: Bundles::default(),
            wanted: Vec::new(),
            touched: Vec::new(),
            here: Vec::new(),
            wave: 0,
            quiet: true,
            turns: 0,
            lookahead: Lookahead::default(),
        }
    }
}

impl Feed {
    /// Lends what the run uses: see [`BlockRun`](super::BlockRun).
    pub fn begin(
        &mut self,
        store: &mut Store,
        observer: &mut RoutingObserver,
        lanes: Option<&mut Lanes>,
        stop: &AtomicBool,
    ) {
        self.store = store;
        self.lanes = lanes.map_or(std::ptr::null_mut(), std::ptr::from_mut);
        // What is recorded is to be replayed, and a replay does not compute.
        self.lookahead.begin(observer.recorder.is_none() && store.speculates());
        self.observer = observer;
        self.stop = stop;
    }

    /// Ends the run: all leases go.
    pub fn end(&mut self, store: &mut Store) {
        self.bundles.end(store);
        // SAFETY: null, or lent by `begin` for the run.
        if let Some(lanes) = unsafe { self.lanes.as_mut() } {
            lanes.end();
        }
        self.beside = false;
        self.lanes = std::ptr::null_mut();
        self.store = std::ptr::null_mut();
        self.observer = std::ptr::null_mut();
        self.stop = std::ptr::null();
    }

    /// The flag that ends the run.
    pub const fn stop(&self) -> *const AtomicBool {
        self.stop
    }

    /// What the thread computes from now on.
    pub fn says(&mut self, what: Computing) {
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        unsafe { &mut *self.store }.computing(what);
    }

    /// Begins a block: all threads have left the one before, whose leases can go.
    pub fn start(&mut self, node: &FusedBlock, work: &Work, input: Tensor<'_>) -> Result<(), BackendError> {
        let (block, routing) = (&node.block, &work.routing);
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &mut *self.store };
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        unsafe { &mut *self.observer }.block(block.first_blocks(), block.experts, routing);
        self.here.clear();
        self.here.resize(routing.touched().len(), 0);
        (self.wave, self.quiet, self.turns) = (0, true, 0);
        self.hand_over(node, work, input);
        self.bundles.begin(store, block.first_blocks(), &self.wanted, routing.how())?;
        self.lookahead.judge(store, routing);
        Ok(())
    }

    /// Gives the lane its pairs, and notes the experts of the others.
    fn hand_over(&mut self, node: &FusedBlock, work: &Work, input: Tensor<'_>) {
        let routing = &work.routing;
        self.wanted.clear();
        self.touched.clear();
        // SAFETY: null, or lent by `begin` for the run, and used by thread 0 only.
        let lanes = node.hot.zip(unsafe { self.lanes.as_mut() });
        self.beside = lanes.is_some();
        let held = lanes.and_then(|(hot, lanes)| {
            let row = |all: &[[i32; 2]], pair: usize, side: usize| all[pair][side].unsigned_abs() as usize;
            let into_input = |pair| row(&work.into_scratch, pair, 1);
            let into_output = |pair| row(&work.into_output, pair, 0);
            lanes.begin(hot, routing, into_input, into_output, input).then_some((hot, &*lanes))
        });
        for (index, &expert) in routing.touched().iter().enumerate() {
            if held.is_none_or(|(hot, lanes)| !lanes.has(hot, expert)) {
                self.wanted.push(expert);
                self.touched.push(index);
            }
        }
    }

    /// Whether [`Feed::finish`] has something to do.
    pub const fn is_waited_for(&self) -> bool {
        self.beside
    }

    /// Waits for the lane's results, and puts them into the output, rows `stride` bytes apart.
    ///
    /// # Safety
    /// As [`Lanes::finish`].
    pub unsafe fn finish(&mut self, output: *mut c_void, stride: usize) -> Result<(), BackendError> {
        self.beside = false;
        // SAFETY: null, or lent by `begin` for the run, and used by thread 0 only.
        match unsafe { self.lanes.as_mut() } {
            // SAFETY: the caller's contract.
            Some(lanes) => unsafe { lanes.finish(output, stride) },
            None => Ok(()),
        }
    }

    /// Asks for the lane's experts, too, which it has failed to compute. Everything else of the node is computed. Scratch is dealt
    /// on from where it was (`turns`), and nothing of these experts has arrived (`here`); only waves begin again.
    pub fn take_over(&mut self, node: &FusedBlock, routing: &Routing) -> Result<(), BackendError> {
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &mut *self.store };
        let others = (0..routing.touched().len()).filter(|index| !self.touched.contains(index));
        self.touched = others.collect();
        self.wanted = self.touched.iter().map(|&index| routing.touched()[index]).collect();
        (self.wave, self.quiet) = (0, true);
        self.bundles.begin(store, node.block.first_blocks(), &self.wanted, routing.how())?;
        Ok(())
    }

    /// Which of the touched experts the CPU computes.
    pub fn touched(&self) -> &[usize] {
        &self.touched
    }

    /// Guesses what `next` will need, and has it read while nothing else is.
    pub fn look_ahead(
        &mut self,
        now: &FusedBlock,
        next: &FusedBlock,
        routing: &Routing,
    ) -> Result<(), BackendError> {
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &mut *self.store };
        // SAFETY: null, or lent by `begin` for the run, and used by thread 0 only.
        let hot = next.hot.zip(unsafe { self.lanes.as_ref() });
        self.lookahead
            .guess(store, now, next, routing, |expert| hot.is_some_and(|(hot, lanes)| lanes.has(hot, expert)))
    }

    /// How well routers' choices were foretold since the last time that this was asked.
    pub fn take_foretold(&mut self) -> Foretold {
        self.lookahead.take_counts()
    }

    /// Collects what is there by now, waiting for the first of it, and says whether that was the last.
    pub fn publish(
        &mut self,
        block: &Block,
        state: State<'_>,
        entries: &mut Vec<Entry>,
    ) -> Result<bool, BackendError> {
        // SAFETY: lent by `begin` for the run.
        let store = unsafe { &mut *self.store };
        // The others may be at the wave before this one; not if that had nothing to compute.
        let through = if self.quiet { self.wave } else { self.wave.saturating_sub(1) };
        let room = self.bundles.go_on(store, through)?;
        while entries.is_empty() && !self.bundles.is_exhausted() {
            let Some(arrived) = self.bundles.next(store, self.wave)? else { break };
            self.arrived(block, arrived, state, entries);
            while let Some(arrived) = self.bundles.try_next(store, self.wave)? {
                self.arrived(block, arrived, state, entries);
            }
        }
        let last = self.bundles.is_exhausted();
        if entries.is_empty() && !last && self.quiet && !room {
            // Nothing is used by anyone, and yet there is no room.
            // SAFETY: the layout outlives the graph's call.
            let tensor = unsafe { (*block.down.tensor).name.clone() };
            return Err(BackendError::NoRoom { tensor });
        }
        // Others may still compute from what has to go for the next portion. A wave of nothing, then: when its barrier is
        // passed, they are through.
        self.quiet = entries.is_empty();
        self.wave += 1;
        Ok(last)
    }

    /// Notes a matrix of an expert, and hands out what can be computed now.
    fn arrived(&mut self, block: &Block, arrived: Arrived, state: State<'_>, entries: &mut Vec<Entry>) {
        let Arrived { expert, matrix, data } = arrived;
        let expert = self.touched[expert];
        let item = &state.items[expert];
        // Relaxed: a barrier follows before anybody reads it.
        item.weights[matrix].store(data.cast_mut().cast(), Ordering::Relaxed);
        let before = self.here[expert];
        let now = before | 1 << matrix;
        self.here[expert] = now;
        let all_first = (1u8 << block.first.len()) - 1;
        let all = all_first << 1 | 1;
        let has_first = |bits: u8| bits & all_first == all_first;
        let entry = Entry {
            item: u32::try_from(expert).expect("experts are counted in 32 bits"),
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
    }
}

const _: () = assert!(MATRICES < 8, "matrices that are there are counted in the bits of a byte");
