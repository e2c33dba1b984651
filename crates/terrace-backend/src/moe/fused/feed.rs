//! Thread 0's part of a block: requests experts from the store and hands out those that arrive, or
//! all at once if they stay in memory.

use super::lookahead::Lookahead;
use super::node::FusedBlock;
use super::sequence::{Entry, Item};
use super::work::{State, Work};
use crate::block::{Block, MATRICES};
use crate::error::BackendError;
use crate::lanes::{AnyLanes, PairRows};
use crate::lossy::{LossyRouting, LowChoice, reads_less};
use crate::memory::read_ahead::ReadAhead;
use crate::observe::foretold::Foretold;
use crate::observe::observer::RoutingObserver;
use crate::routing::Routing;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use terrace_ggml::Tensor;
use terrace_ggml::cpu::custom_node;
use terrace_store::{Arrived, Bundles, Computing, Store};

/// Requests a block's experts.
pub struct Feed {
    store: *mut Store,
    observer: *mut RoutingObserver,
    /// `None` if there are no lanes.
    lanes: Option<*mut AnyLanes>,
    /// Null if all mapped weights are in memory, or none are mapped.
    ahead: *const ReadAhead,
    /// True if a lane may compute for this node.
    beside: bool,
    bundles: Bundles,
    /// The experts to request, in the order of the touched ones: all but those of the lane.
    wanted: Vec<WantedExpert>,
    /// The experts that may be read in fewer bits; null if none may.
    allowed: *const LowChoice,
    /// Number of experts whose bytes the lane has been given and not copied yet, and numbers of those
    /// that it has.
    held: usize,
    copied: Vec<usize>,
    /// Number of waves published in this node, and whether the last one was empty.
    wave: u64,
    quiet: bool,
    /// Number of experts that have a turn.
    turns: usize,
    lookahead: Lookahead,
}

/// An expert that the store is asked for, or that is in memory.
#[derive(Clone, Copy)]
struct WantedExpert {
    /// Its number in the layer.
    id: u32,
    /// Its index among the touched ones.
    index: usize,
    /// True if the lane waits for its bytes.
    awaited: bool,
    /// True if it is read in fewer bits.
    low: bool,
    /// A bit for each matrix that has arrived.
    here: u8,
}

impl WantedExpert {
    /// An expert of which nothing is here.
    const fn new(id: u32, index: usize, awaited: bool) -> Self {
        Self { id, index, awaited, low: false, here: 0 }
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            store: std::ptr::null_mut(),
            observer: std::ptr::null_mut(),
            lanes: None,
            ahead: std::ptr::null(),
            beside: false,
            bundles: Bundles::default(),
            wanted: Vec::new(),
            allowed: std::ptr::null(),
            held: 0,
            copied: Vec::new(),
            wave: 0,
            quiet: true,
            turns: 0,
            lookahead: Lookahead::default(),
        }
    }
}

impl Feed {
    /// See [`BlockRun::lose`](super::BlockRun::lose).
    pub fn lose(&mut self, routing: Option<LossyRouting>, low: *const LowChoice) {
        self.lookahead.guess_as(routing);
        self.allowed = low;
    }

    /// Lends the objects that the run uses; see [`BlockRun`](super::BlockRun).
    pub fn begin(
        &mut self,
        store: &mut Store,
        observer: &mut RoutingObserver,
        lanes: Option<&mut AnyLanes>,
        ahead: Option<&ReadAhead>,
    ) {
        self.store = store;
        self.lanes = lanes.map(std::ptr::from_mut);
        self.ahead = ahead.map_or(std::ptr::null(), std::ptr::from_ref);
        // Recorded traces are replayed without computing, so there can be no guesses.
        self.lookahead.begin(observer.recorder.is_none() && store.speculates());
        self.observer = observer;
    }

    /// Ends the run and releases all leases.
    pub fn end(&mut self, store: &mut Store) {
        // SAFETY: null, or lent by `begin` for the run.
        if let Some(lanes) = unsafe { self.lanes.map(|lanes| &mut *lanes) } {
            // Nothing is read from slots after this.
            lanes.end_sending();
            lanes.end();
        }
        self.held = 0;
        self.bundles.end(store);
        self.beside = false;
        self.lanes = None;
        self.ahead = std::ptr::null();
        self.store = std::ptr::null_mut();
        self.observer = std::ptr::null_mut();
    }

    /// Tells the store what the thread computes from now on.
    pub fn says(&mut self, what: Computing) {
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        unsafe { &mut *self.store }.computing(what);
    }

    /// Starts a block. All threads have left the previous one, whose leases can be released.
    pub fn start(&mut self, node: &FusedBlock, work: &Work, input: Tensor<'_>) -> Result<(), BackendError> {
        let (block, routing) = (&node.block, &work.routing);
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &mut *self.store };
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let observer = unsafe { &mut *self.observer };
        // Those that have no copies either are counted where they are chosen.
        if !node.is_plain() {
            observer.block(block.first_blocks(), block.experts, routing);
        }
        (self.wave, self.quiet, self.turns) = (0, true, 0);
        self.hand_over(node, work, input);
        if !block.kept {
            self.choose_low(block, work);
            let low = block.first_low_blocks();
            let how = routing.how();
            let wanted = self.wanted.iter().map(|wanted| (wanted.id, wanted.low));
            self.bundles.begin_some_small(store, block.first_blocks(), low, wanted, how)?;
            self.lookahead.judge(store, routing);
        }
        Ok(())
    }

    /// Finds the wanted experts that are read in fewer bits.
    fn choose_low(&mut self, block: &Block, work: &Work) {
        // SAFETY: null, or lent by `lose` for the run, and used by thread 0 only.
        let Some(allowed) = (unsafe { self.allowed.as_ref() }).filter(|_| block.low.is_some()) else {
            return;
        };
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &*self.store };
        for wanted in &mut self.wanted {
            wanted.low = !wanted.awaited
                && allowed.allows(block.ids, wanted.id)
                && reads_less(store, wanted.id, block.first_blocks(), block.first_low_blocks());
            // Relaxed, because a barrier follows before other threads read it.
            work.items[wanted.index].low.store(wanted.low, Ordering::Relaxed);
        }
    }

    /// Has experts whose copies in fewer bits could not be read computed in full.
    fn mind_failures(&mut self, state: State<'_>) {
        while let Some((nth, error)) = self.bundles.take_failure() {
            let wanted = &mut self.wanted[nth];
            (wanted.here, wanted.low) = (0, false);
            // Nothing of it was handed out, so no other thread reads it yet.
            state.items[wanted.index].low.store(false, Ordering::Relaxed);
            // SAFETY: null, or lent by `lose` for the run, and used by thread 0 only.
            if let Some(allowed) = unsafe { self.allowed.as_ref() } {
                allowed.tally.low_failed(&error);
            }
        }
    }

    /// Gives the lane its pairs, and collects the experts of the others.
    fn hand_over(&mut self, node: &FusedBlock, work: &Work, input: Tensor<'_>) {
        let routing = &work.routing;
        self.wanted.clear();
        self.held = 0;
        // SAFETY: null, or lent by `begin` for the run, and used by thread 0 only.
        let lanes = node.hot.zip(unsafe { self.lanes.map(|lanes| &mut *lanes) });
        self.beside = lanes.is_some();
        let held = lanes.and_then(|(hot, lanes)| {
            let rows = PairRows { input, inputs: &work.into_scratch, outputs: &work.into_output };
            // SAFETY: lent by `begin` for the run, and used by thread 0 only.
            let store = unsafe { &*self.store };
            lanes.begin(hot, routing, rows, store).then_some(&*lanes)
        });
        for (index, &expert) in routing.touched().iter().enumerate() {
            if held.is_none_or(|lanes| !lanes.took(index)) {
                let awaited = held.is_some_and(|lanes| lanes.awaits(index));
                self.wanted.push(WantedExpert::new(expert, index, awaited));
            }
        }
        if held.is_some() {
            let first = node.block.first_blocks().next();
            // Those that are sent have no copy, so they count as the CPU's.
            let has_copy = |index| !has(&self.wanted, index);
            // SAFETY: lent by `begin` for the run, and used by thread 0 only.
            unsafe { &mut *self.observer }.on_device(first, routing, has_copy);
        }
    }

    /// Returns true if [`Feed::finish`] has to be called.
    pub const fn is_waited_for(&self) -> bool {
        self.beside
    }

    /// Waits for the lane's results, and copies them into the output, whose rows are `stride` bytes
    /// apart.
    ///
    /// # Safety
    /// As [`ExpertLanes::finish`](crate::lanes::ExpertLanes::finish).
    pub unsafe fn finish(&mut self, output: *mut c_void, stride: usize) -> Result<(), BackendError> {
        self.beside = false;
        // SAFETY: null, or lent by `begin` for the run, and used by thread 0 only.
        match unsafe { self.lanes.map(|lanes| &mut *lanes) } {
            // SAFETY: the caller's contract; the store is lent like the lanes.
            Some(lanes) => unsafe { lanes.finish(output, stride, &mut *self.store) },
            None => Ok(()),
        }
    }

    /// Requests the experts that the lane has failed to compute; everything else of the node has
    /// been computed. Turns continue to count, so scratch stays valid, and none of these experts
    /// counts as arrived yet (`here`); only waves start again.
    pub fn take_over(&mut self, node: &FusedBlock, routing: &Routing) -> Result<(), BackendError> {
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &mut *self.store };
        let computed: Vec<usize> = self.computed().collect();
        let all = routing.touched().iter().enumerate();
        let had_copy: Vec<usize> =
            all.clone().map(|(index, _)| index).filter(|&index| !has(&self.wanted, index)).collect();
        self.wanted.clear();
        let left = all.filter(|(index, _)| !computed.contains(index));
        self.wanted.extend(left.map(|(index, &expert)| WantedExpert::new(expert, index, false)));
        self.held = 0;
        let first = node.block.first_blocks().next();
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        unsafe { &mut *self.observer }.not_on_device(first, routing, &had_copy);
        (self.wave, self.quiet) = (0, true);
        if node.block.kept {
            return Ok(());
        }
        let (block, none) = (&node.block, std::iter::empty());
        let wanted = self.wanted.iter().map(|wanted| (wanted.id, false));
        self.bundles.begin_some_small(store, block.first_blocks(), none, wanted, routing.how())?;
        Ok(())
    }

    /// Indices of the touched experts that the CPU computes.
    pub fn computed(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().filter(|wanted| !wanted.awaited).map(|wanted| wanted.index)
    }

    /// Guesses the experts that `next` will need, and has them read while no demand waits.
    pub fn look_ahead(
        &mut self,
        now: &FusedBlock,
        next: &FusedBlock,
        routing: &Routing,
    ) -> Result<(), BackendError> {
        if next.block.kept {
            return Ok(());
        }
        // SAFETY: lent by `begin` for the run, and used by thread 0 only.
        let store = unsafe { &mut *self.store };
        // SAFETY: null, or lent by `begin` for the run, and used by thread 0 only.
        let hot = next.hot.zip(unsafe { self.lanes.map(|lanes| &*lanes) });
        self.lookahead
            .guess(store, now, next, routing, |expert| hot.is_some_and(|(hot, lanes)| lanes.has(hot, expert)))
    }

    /// Starts a pass: the guess for a block of the last one is of no use.
    pub fn begin_pass(&mut self) {
        self.lookahead.forget();
    }

    /// Takes the counts of predictions since the last call.
    pub fn take_foretold(&mut self) -> Foretold {
        self.lookahead.take_counts()
    }

    /// Collects the experts that have arrived, waiting for the first, and returns whether these
    /// were the last.
    pub fn publish(
        &mut self,
        block: &Block,
        state: State<'_>,
        entries: &mut Vec<Entry>,
    ) -> Result<bool, BackendError> {
        if block.kept {
            self.at_hand(block, state, entries);
            return Ok(true);
        }
        // SAFETY: lent by `begin` for the run.
        let store = unsafe { &mut *self.store };
        // Other threads may still be in the previous wave, unless it was empty.
        let through = if self.quiet { self.wave } else { self.wave.saturating_sub(1) };
        let (mut room, mut last);
        loop {
            self.let_go(false);
            room = self.bundles.go_on(store, through)?;
            while entries.is_empty() && !self.bundles.is_exhausted() {
                let Some(arrived) = self.bundles.next(store, self.wave)? else { break };
                self.mind_failures(state);
                self.arrived(block, arrived, state, entries);
                while let Some(arrived) = self.bundles.try_next(store, self.wave)? {
                    self.mind_failures(state);
                    self.arrived(block, arrived, state, entries);
                }
            }
            self.mind_failures(state);
            last = self.bundles.is_exhausted();
            // Only the lane can make room now.
            if !entries.is_empty() || last || !self.quiet || self.held == 0 {
                break;
            }
            self.let_go(true);
        }
        if entries.is_empty() && !last && self.quiet && !room {
            // No thread uses anything, and yet there is no room. SAFETY: the layout outlives the
            // graph's call.
            let tensor = unsafe { (*block.down.tensor).name.clone() };
            return Err(BackendError::NoRoom { tensor });
        }
        // Other threads may still compute from slots that the next portion needs. So an empty wave
        // is published: once its barrier is passed, they are done.
        self.quiet = entries.is_empty();
        self.wave += 1;
        Ok(last)
    }

    /// Hands out all experts of a block that stays in memory.
    fn at_hand(&mut self, block: &Block, state: State<'_>, entries: &mut Vec<Entry>) {
        // SAFETY: null, or lent by `begin` for the run.
        let ahead = unsafe { self.ahead.as_ref() };
        for (nth, &WantedExpert { id, index, awaited, .. }) in self.wanted.iter().enumerate() {
            let item = &state.items[index];
            for (address, matrix) in item.weights.iter().zip(block.matrices()) {
                // SAFETY: the tensor is the graph's.
                let all = unsafe { custom_node(matrix.weights) }.data();
                let weights = all.cast::<u8>().wrapping_add(id as usize * matrix.expert);
                if let Some(ahead) = ahead {
                    ahead.want(weights, matrix.expert);
                }
                // Relaxed, because a barrier follows before other threads read it.
                address.store(weights.cast(), Ordering::Relaxed);
            }
            if awaited {
                // SAFETY: lent by `begin` for the run, and used by thread 0 only.
                send(unsafe { &mut *self.lanes.expect("a lane waits for it") }, item, index, nth);
                continue;
            }
            let entry =
                Entry { item: u32::try_from(index).expect("counted in 32 bits"), first: true, down: true };
            item.turn.store(self.turns, Ordering::Relaxed);
            state.order[self.turns].store(entry.item, Ordering::Relaxed);
            self.turns += 1;
            entries.push(entry);
        }
    }

    /// Lets go of the experts that the lane has copied, after waiting for the first of them if asked; of
    /// all, if it copies no more.
    fn let_go(&mut self, wait: bool) {
        if self.held == 0 {
            return;
        }
        // SAFETY: null, or lent by `begin` for the run, and used by thread 0 only.
        let Some(lanes) = (unsafe { self.lanes.map(|lanes| &mut *lanes) }) else { return };
        if !lanes.has_read(&mut self.copied, wait) {
            lanes.end_sending();
            lanes.has_read(&mut self.copied, false);
            // Those that it has not copied will be requested again.
            self.bundles.let_all_go();
            self.held = 0;
            self.copied.clear();
        }
        for nth in self.copied.drain(..) {
            self.bundles.let_go(nth);
            self.held -= 1;
        }
    }

    /// Notes the arrival of a matrix of an expert, and adds what can now be computed.
    fn arrived(&mut self, block: &Block, arrived: Arrived, state: State<'_>, entries: &mut Vec<Entry>) {
        let Arrived { expert: nth, matrix, data } = arrived;
        let wanted = &mut self.wanted[nth];
        let index = wanted.index;
        let item = &state.items[index];
        // Relaxed, because a barrier follows before other threads read it.
        item.weights[matrix].store(data.cast_mut().cast(), Ordering::Relaxed);
        let before = wanted.here;
        let now = before | 1 << matrix;
        wanted.here = now;
        let all_first = (1u8 << block.first.len()) - 1;
        let all = all_first << 1 | 1;
        if wanted.awaited {
            if now == all {
                self.bundles.hold(nth);
                self.held += 1;
                // SAFETY: lent by `begin` for the run, and used by thread 0 only.
                send(unsafe { &mut *self.lanes.expect("a lane waits for it") }, item, index, nth);
            }
            return;
        }
        let low = wanted.low;
        let has_first = |bits: u8| bits & all_first == all_first;
        let entry = Entry {
            item: u32::try_from(index).expect("experts are counted in 32 bits"),
            // Where experts take turns with the scratch, they are handed out as a whole; and so are copies
            // in fewer bits, in whose place the expert may come in full if one of them cannot be read.
            first: if state.halves && !low { has_first(now) && !has_first(before) } else { now == all },
            down: now == all,
        };
        // SAFETY: null, or lent by `lose` for the run, and used by thread 0 only.
        if let Some(allowed) = unsafe { self.allowed.as_ref() }.filter(|_| low && entry.down) {
            allowed.tally.low();
        }
        if entry.first {
            item.turn.store(self.turns, Ordering::Relaxed);
            state.order[self.turns].store(entry.item, Ordering::Relaxed);
            self.turns += 1;
        }
        if entry.first || entry.down {
            // The first half may be in the same wave.
            match entries.iter_mut().find(|other| other.item == entry.item) {
                Some(other) => other.down |= entry.down,
                None => entries.push(entry),
            }
        }
    }
}

/// Returns true if the touched expert of this index is among these.
fn has(wanted: &[WantedExpert], index: usize) -> bool {
    wanted.binary_search_by_key(&index, |wanted| wanted.index).is_ok()
}

/// Hands an expert whose matrices are in memory over to the lane.
fn send(lanes: &mut AnyLanes, item: &Item, index: usize, nth: usize) {
    let addresses = item.weights.each_ref().map(|weights| weights.load(Ordering::Relaxed) as usize);
    lanes.send(index, nth, addresses);
}

const _: () = assert!(MATRICES < 8, "matrices that are there are counted in the bits of a byte");
