//! Computes a whole MoE block as one node: gate, up, activation and down per expert, in the order
//! in which experts become resident.
//!
//! One custom node stands for the block's products and everything between them. It runs on ggml's
//! threads; the only barriers are those between waves of arrivals. Within a wave, work is a
//! sequence of small tasks that threads claim in order. A task that needs an earlier one's result
//! waits for that task alone, so the experts' three stages overlap.

mod feed;
mod lookahead;
mod node;
mod router;
mod runs;
mod sequence;
mod stages;
mod work;

pub use node::FusedBlock;
pub use router::Router;

use super::activations::{arrange, convert, quantise};
use super::waves::{Next, Waves};
use crate::block::{Block, INPUTS};
use crate::error::BackendError;
use crate::failure::Failure;
use crate::lanes::AnyLanes;
use crate::lossy::{LossyRouting, LowChoice};
use crate::memory::read_ahead::ReadAhead;
use crate::observe::foretold::Foretold;
use crate::observe::observer::RoutingObserver;
use crate::passes::Prompts;
use crate::scratch::Scratch;
use feed::Feed;
use sequence::{Entry, wait_for};
use stages::Stages;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use terrace_ggml::cpu::blocked::{BlockedExpert, ThreadShare};
use terrace_ggml::cpu::{RawTensor, Stop, custom_node};
use terrace_ggml::{Graph, Op, Tensor};
use terrace_kernels::matmul::Product;
use terrace_store::{Bundles, Computing, Store};
use work::{ASKED_ROWS, Work};

/// A block of the graph, with pointers to its state.
pub struct FusedNode {
    pub fused: FusedBlock,
    /// Index of the block in the graph.
    pub index: usize,
    pub run: *const BlockRun,
    /// The next block, which may belong to the next piece of the graph; null after the last.
    pub next: *const FusedNode,
}

/// State of all fused blocks of a graph run, shared by ggml's threads.
///
/// Thread 0 owns `feed`. It writes `work` before a node's first barrier; the other threads read it
/// after this barrier.
#[derive(Default)]
pub struct BlockRun {
    feed: UnsafeCell<Feed>,
    work: UnsafeCell<Work>,
    waves: Waves<Entry>,
    failure: Failure,
    /// Ends the run; `None` outside of runs.
    stop: Option<NonNull<Stop>>,
    /// The input's rows, converted once for each activation type in use.
    inputs: [Scratch; INPUTS],
    /// The same, arranged for Terrace's own kernels.
    arranged: [Scratch; INPUTS],
    /// The same, quantised for Terrace's tiles.
    tiled: [Scratch; INPUTS],
    /// Scratch for ggml's blocked kernel or tiles, with a part for each thread.
    blocked: Scratch,
    /// Size of one thread's part in bytes.
    blocked_part: usize,
}

// SAFETY: the pointers within are set for the time of one run by the executor that owns it and the
// store; access follows the protocol described at BlockRun.
unsafe impl Send for BlockRun {}
// SAFETY: as for Send.
unsafe impl Sync for BlockRun {}

impl BlockRun {
    /// Prepares for a graph's blocks and `threads` threads.
    pub fn prepare(&mut self, graph: &Graph<'_>, nodes: &[FusedNode], threads: usize) {
        for node in nodes {
            for (number, matrix) in node.fused.block.conversions() {
                // SAFETY: the block's tensors are the graph's that is being prepared.
                let [inner, per_token, tokens, _] = unsafe { custom_node(node.fused.block.input) }.ne();
                let rows = (per_token * tokens).unsigned_abs() as usize;
                let inner = inner.unsigned_abs() as usize;
                self.inputs[number].reserve(matrix.converted_bytes(inner) * rows);
                self.arranged[number].reserve(matrix.arranged_bytes(inner) * rows);
                self.tiled[number].reserve(matrix.tiled_bytes(inner) * rows);
            }
            if node.fused.block.matrices().any(|matrix| matrix.used_tile().is_some()) {
                self.blocked_part = self.blocked_part.max(Product::scratch_bytes().next_multiple_of(64));
            }
            for &product in node.fused.block.replaced.iter().chain([&node.fused.block.last]) {
                let product = graph.node(product);
                if product.op() == Op::MUL_MAT_ID {
                    let one = BlockedExpert::scratch_bytes(product, 1);
                    self.blocked_part = self.blocked_part.max(one.next_multiple_of(64));
                }
            }
        }
        self.blocked.reserve(self.blocked_part * threads);
    }

    /// Forgets the last run.
    pub fn reset(&mut self) {
        self.failure.reset();
    }

    /// Starts a pass of tokens through the model.
    pub fn begin_pass(&mut self) {
        self.feed.get_mut().begin_pass();
    }

    /// Has experts guessed as they will be chosen: with this loss, or without; and those of `low` read in
    /// fewer bits, if it is not null. It has to stay valid until [`BlockRun::end`].
    pub fn lose(&mut self, routing: Option<LossyRouting>, low: *const LowChoice) {
        self.feed.get_mut().lose(routing, low);
    }

    /// Lends the store, the observer of routing, the lanes, and what is still to be read of mapped files, for a run;
    /// `stop` ends the graph when a node fails.
    pub fn begin(
        &mut self,
        store: &mut Store,
        observer: &mut RoutingObserver,
        lanes: Option<&mut AnyLanes>,
        ahead: Option<&ReadAhead>,
        stop: &Stop,
    ) {
        self.feed.get_mut().begin(store, observer, lanes, ahead);
        self.stop = Some(NonNull::from(stop));
    }

    /// Ends a run and releases all leases. Nothing is computed any more.
    pub fn end(&mut self, store: &mut Store) {
        self.feed.get_mut().end(store);
        self.stop = None;
    }

    /// Returns true if the slots are large enough to hold the block's experts as a whole.
    pub fn suits(block: &Block, store: &Store) -> bool {
        Bundles::suit(store, block.first_blocks())
    }

    /// Thread 0's part of a node.
    fn attempt(&self, index: usize, part: impl FnOnce() -> Result<(), BackendError>) {
        // SAFETY: a reference is alive during the call.
        unsafe { self.failure.attempt(index, self.stop(), part) }
    }

    /// Ends the run that is computed.
    fn stop(&self) -> &Stop {
        let stop = self.stop.expect("nodes are computed between `begin` and `end`");
        // SAFETY: `begin` lent it until `end`.
        unsafe { stop.as_ref() }
    }

    /// Thread 0, before the node's first barrier: reads the router's choice and requests experts.
    fn start(&self, node: &FusedNode, dst: Tensor<'_>) {
        // SAFETY: thread 0 alone uses `feed`, and no other thread reads `work` before the node's
        // first barrier.
        let (feed, work) = unsafe { (&mut *self.feed.get(), &mut *self.work.get()) };
        if let Some(block) = node.fused.a_block() {
            feed.says(Computing::Experts(block));
        }
        self.attempt(node.index, || {
            // SAFETY: the block's tensors are alive during the run.
            let (ids, input) =
                unsafe { (custom_node(node.fused.block.ids), custom_node(node.fused.block.input)) };
            work.read(&node.fused.block, ids, input, dst)?;
            feed.start(&node.fused, work, input)
        });
    }

    /// Thread 0: guesses the experts of the next block.
    fn look_ahead(&self, node: &FusedNode) {
        // SAFETY: null, or in one of the executor's lists, which do not change during the run.
        let Some(next) = (unsafe { node.next.as_ref() }) else { return };
        // SAFETY: thread 0 alone uses `feed`; `work` is only read from here on.
        let (feed, work) = unsafe { (&mut *self.feed.get(), &*self.work.get()) };
        self.attempt(node.index, || feed.look_ahead(&node.fused, &next.fused, &work.routing));
    }

    /// Thread 0 leaves a node. Its output is complete once all threads are done; ggml computes what
    /// follows.
    fn leave(&self, node: &FusedNode, dst: Tensor<'_>) {
        // SAFETY: as in `look_ahead`.
        let next = unsafe { node.next.as_ref() };
        // SAFETY: thread 0 alone uses `feed`.
        let feed = unsafe { &mut *self.feed.get() };
        if let Some(prompts) = &node.fused.block.prompts {
            clear_others(prompts, dst);
        }
        if feed.is_waited_for() {
            self.attempt(node.index, || {
                // SAFETY: rows of the node's output, of pairs that the CPU does not compute;
                // nothing reads it before ggml's barrier after the node.
                match unsafe { feed.finish(dst.data(), dst.nb()[1]) } {
                    Err(BackendError::Device(_)) => self.take_over(node, feed, dst),
                    finished => finished,
                }
            });
        }
        feed.says(Computing::Dense(next.and_then(|next| next.fused.a_block())));
    }

    /// Thread 0 computes the pairs that a lane failed to compute. This is slow, but happens only
    /// once, since the lane is not used again.
    fn take_over(&self, node: &FusedNode, feed: &mut Feed, dst: Tensor<'_>) -> Result<(), BackendError> {
        // SAFETY: it is only read since the node's first barrier.
        let work = unsafe { &*self.work.get() };
        // The leases of the other experts are released next, so no thread may compute with them any
        // more.
        feed.computed().for_each(|index| wait_for(&work.items[index], 2));
        feed.take_over(&node.fused, &work.routing)?;
        let mut entries = Vec::new();
        loop {
            entries.clear();
            let last = feed.publish(&node.fused.block, work.state(), &mut entries)?;
            let share = ThreadShare { ith: 0, nth: 1 };
            self.stages(node, work, dst, share).compute(&entries, &AtomicUsize::new(0));
            if last {
                return Ok(());
            }
        }
    }

    /// The state with which a thread computes a node.
    fn stages<'a>(
        &'a self,
        node: &'a FusedNode,
        work: &'a Work,
        dst: Tensor<'_>,
        share: ThreadShare,
    ) -> Stages<'a> {
        Stages {
            block: &node.fused.block,
            work,
            inputs: self.inputs.each_ref().map(Scratch::as_ptr),
            arranged: self.arranged.each_ref().map(Scratch::as_ptr),
            tiled: self.tiled.each_ref().map(Scratch::as_ptr),
            output: dst.data(),
            output_row: dst.nb()[1],
            blocked: self.blocked.as_ptr().cast::<u8>().wrapping_add(share.ith * self.blocked_part).cast(),
            threads: share.nth,
            stop: self.stop(),
            asks: share.ith == 0 && work.shape.rows >= ASKED_ROWS,
        }
    }

    /// Takes the counts of predictions since the last call.
    pub fn take_foretold(&mut self) -> Foretold {
        self.feed.get_mut().take_foretold()
    }

    /// Thread 0: waits until something can be computed, and hands it out in `entries`.
    fn publish(&self, node: &FusedNode, entries: &mut Vec<Entry>) -> Next {
        // SAFETY: thread 0 alone uses `feed`; `work` is only read from here on.
        let (feed, work) = unsafe { (&mut *self.feed.get(), &*self.work.get()) };
        let mut next = Next::More;
        if self.stop().ask() {
            self.failure.end(node.index);
        }
        if !self.failure.is_any() {
            self.attempt(node.index, || {
                if feed.publish(&node.fused.block, work.state(), entries)? {
                    next = Next::Last;
                }
                Ok(())
            });
        }
        if self.failure.is_any() { Next::Failed } else { next }
    }
}

/// Clears the rows of tokens that nobody needs, and no expert has computed: they have to be numbers all the
/// same, because later operations mask them.
fn clear_others(prompts: &Prompts, dst: Tensor<'_>) {
    let token = dst.nb()[2];
    for other in prompts.others().flatten() {
        // SAFETY: the node's output has a row for each of the prompts' tokens, dense up to the next token's
        // (`Block::recognise`); no expert writes these, and nothing reads them before the node's end.
        unsafe { dst.data().cast::<u8>().add(other * token).write_bytes(0, token) };
    }
}

/// The custom node's function.
///
/// # Safety
/// `userdata` is a [`FusedNode`] whose run is within `begin`..`end`; called by ggml on all threads
/// of the run.
pub unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, nth: c_int, userdata: *mut c_void) {
    // SAFETY: the executor put a live FusedNode there; ggml passes the live node.
    let (node, dst) = unsafe { (&*userdata.cast::<FusedNode>(), custom_node(dst)) };
    // SAFETY: the executor keeps it for as long as the graph is computed.
    let run = unsafe { &*node.run };
    if run.failure.is_before(node.index) {
        return;
    }
    let share = ThreadShare { ith: ith.unsigned_abs() as usize, nth: nth.unsigned_abs() as usize };
    if share.ith == 0 {
        run.start(node, dst);
    }
    // SAFETY: the block's tensors are alive during the run.
    let input = unsafe { custom_node(node.fused.block.input) };
    for (number, matrix) in node.fused.block.conversions() {
        if let Some(kernel) = &matrix.row_kernel {
            arrange(kernel, input, run.arranged[number].as_ptr().cast(), share);
        }
        if matrix.converts() {
            convert(&matrix.kernels, input, run.inputs[number].as_ptr(), share);
        }
        if let Some(tile) = matrix.used_tile() {
            quantise(tile, input, run.tiled[number].as_ptr(), share);
        }
    }
    let compute = |entries: &[Entry], next_task: &AtomicUsize| {
        // SAFETY: thread 0 wrote it before the first barrier, and writes it again with the next
        // node.
        let work = unsafe { &*run.work.get() };
        run.stages(node, work, dst, share).compute(entries, next_task);
    };
    if share.ith > 0 {
        // SAFETY: ggml calls this function once on each of its threads, and its own barrier lies
        // between two nodes.
        unsafe { run.waves.follow(share.nth, compute) };
        return;
    }
    let publish = |entries: &mut Vec<Entry>| run.publish(node, entries);
    let meanwhile = || {
        if !run.failure.is_any() {
            run.look_ahead(node);
        }
    };
    // SAFETY: as for `follow`.
    let end = unsafe { run.waves.lead(share.nth, publish, meanwhile, compute) };
    // Leases stay until the next node's `start` or the end of the run, since other threads may still
    // compute.
    if end == Next::Last {
        run.leave(node, dst);
    }
}
