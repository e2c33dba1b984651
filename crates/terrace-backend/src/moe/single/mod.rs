//! MUL_MAT_ID on managed experts: a custom node that brings what the router chose and computes in order of arrival.

pub mod compute;

use crate::barrier::Barrier;
use crate::error::BackendError;
use crate::failure::Failure;
use crate::memory::weights::ManagedTensor;
use crate::moe::single::compute::{compute, convert};
use crate::observe::observer::RoutingObserver;
use crate::routing::Routing;
use crate::scratch::Scratch;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_ggml::Tensor;
use terrace_ggml::cpu::blocked::{BlockedExpert, ThreadShare};
use terrace_ggml::cpu::{Kernels, RawTensor, custom_node};
use terrace_store::{BlockId, Computing, Fetch, Store, Use};

/// An expert whose bytes are there.
#[derive(Clone, Copy)]
pub struct Item {
    /// Index into the routing's touched experts.
    pub touched: usize,
    /// Its matrix.
    pub weights: *const c_void,
    /// ggml's blocked kernel takes it.
    pub blocked: bool,
}

/// Experts that became resident together, and the counter that deals their rows to the threads.
#[derive(Default)]
struct Wave {
    items: UnsafeCell<Vec<Item>>,
    next_task: AtomicUsize,
    last: AtomicBool,
    /// The node has failed: nothing to compute, and no further wave. Kept per wave, because thread 0 may fail on the next
    /// one before the others have looked at this.
    failed: AtomicBool,
}

/// What a MUL_MAT_ID node needs to know, fixed before the run.
pub struct ExpertNode {
    pub shared: *const ExpertLane,
    pub tensor: *const ManagedTensor,
    pub kernels: Kernels,
    pub experts: u32,
    /// Which of the graph's expert nodes this is, and which of the lane's fetches is its.
    pub fetch: usize,
    /// All expert nodes of the graph, and the end of this one's MoE block among them (nodes with the same ids): bytes of
    /// those behind this one are asked for together with ours.
    pub nodes: *const ExpertNode,
    pub block_end: usize,
    /// The next node; null behind the last.
    pub next: *const ExpertNode,
}

impl ExpertNode {
    /// One of the store's blocks of this node's layer.
    pub fn a_block(&self) -> BlockId {
        // SAFETY: the layout outlives the graph's call.
        unsafe { (*self.tensor).block(0) }
    }

    /// The nodes of the same MoE block behind this one.
    fn siblings(&self) -> &[Self] {
        let first = self.fetch + 1;
        // SAFETY: `nodes` is the executor's list, complete and unchanged during the run; `fetch` is this node's index in
        // it and `block_end` at most its length.
        unsafe { std::slice::from_raw_parts(self.nodes.add(first), self.block_end - first) }
    }
}

/// State of all expert nodes of a graph run, shared by ggml's threads.
///
/// Thread 0 owns `inner` and writes `routing` and the waves; the others read those two behind a barrier.
pub struct ExpertLane {
    inner: UnsafeCell<Inner>,
    /// Written by thread 0 before a node's first barrier, read by all after it.
    routing: UnsafeCell<Routing>,
    waves: [Wave; 2],
    barrier: Barrier,
    failure: Failure,
    activations: Scratch,
    blocked: Scratch,
}

/// What thread 0 alone uses.
struct Inner {
    store: *mut Store,
    observer: *mut RoutingObserver,
    stop: *const AtomicBool,
    fetches: Vec<NodeFetch>,
    blocks: Vec<BlockId>,
    /// How the node's experts are used.
    how: Use,
    /// No thread can be computing from this node's leases: they may be given back.
    quiet: bool,
}

impl Default for ExpertLane {
    fn default() -> Self {
        let inner = Inner {
            store: std::ptr::null_mut(),
            observer: std::ptr::null_mut(),
            stop: std::ptr::null(),
            fetches: Vec::new(),
            blocks: Vec::new(),
            how: Use::Decode,
            quiet: true,
        };
        Self {
            inner: UnsafeCell::new(inner),
            routing: UnsafeCell::default(),
            waves: Default::default(),
            barrier: Barrier::default(),
            failure: Failure::default(),
            activations: Scratch::default(),
            blocked: Scratch::default(),
        }
    }
}

/// The blocks of one node: touched experts `[taken, accepted)` are leased or on the way.
#[derive(Default)]
struct NodeFetch {
    fetch: Fetch,
    /// First touched expert of the fetch in progress.
    from: usize,
    accepted: usize,
}

// SAFETY: the pointers in Inner are set for the time of one run by the executor that owns store and lane; access
// follows the protocol described at ExpertLane.
unsafe impl Send for ExpertLane {}
// SAFETY: as for Send.
unsafe impl Sync for ExpertLane {}

impl ExpertLane {
    /// Prepares for a graph with `nodes` expert nodes, `activation_bytes` of converted activations at most and
    /// `blocked_bytes` of scratch for the blocked kernel.
    pub fn prepare(&mut self, nodes: usize, activation_bytes: usize, blocked_bytes: usize) {
        let inner = self.inner.get_mut();
        if inner.fetches.len() < nodes {
            inner.fetches.resize_with(nodes, NodeFetch::default);
        }
        self.activations.reserve(activation_bytes);
        self.blocked.reserve(blocked_bytes);
    }

    /// Forgets the last run.
    pub fn reset(&mut self) {
        self.routing.get_mut().reset();
        self.failure.reset();
    }

    /// Lends the store for a run, and who takes note of what the router chooses; `stop` ends the graph when the lane fails.
    pub fn begin(&mut self, store: &mut Store, observer: &mut RoutingObserver, stop: &AtomicBool) {
        let inner = self.inner.get_mut();
        inner.store = store;
        inner.observer = observer;
        inner.stop = stop;
    }

    /// Ends a run: all leases go.
    pub fn end(&mut self, store: &mut Store) {
        let inner = self.inner.get_mut();
        for node in &mut inner.fetches {
            store.release(&mut node.fetch);
            (node.from, node.accepted) = (0, 0);
        }
        inner.store = std::ptr::null_mut();
        inner.observer = std::ptr::null_mut();
        inner.stop = std::ptr::null();
    }

    /// What the router chose.
    fn routing(&self) -> &Routing {
        // SAFETY: written by thread 0 in `start`, before the node's first barrier; the callers are thread 0 after
        // that, and the others behind the barrier.
        unsafe { &*self.routing.get() }
    }

    /// Thread 0's part of a node.
    fn attempt(
        &self,
        node: &ExpertNode,
        stop: *const AtomicBool,
        part: impl FnOnce() -> Result<(), BackendError>,
    ) {
        // SAFETY: `begin` lent the flag for the run that this is part of.
        unsafe { self.failure.attempt(node.fetch, stop, part) }
    }
}

/// The custom node's function.
///
/// # Safety
/// `userdata` is an [`ExpertNode`] whose lane is within `begin`..`end`; called by ggml on all threads of the run.
pub unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, nth: c_int, userdata: *mut c_void) {
    // SAFETY: the executor put a live ExpertNode there; ggml passes the live node.
    let (node, dst) = unsafe { (&*userdata.cast::<ExpertNode>(), custom_node(dst)) };
    // SAFETY: the lane outlives the run.
    let lane = unsafe { &*node.shared };
    if lane.failure.is_before(node.fetch) {
        return;
    }
    let share = ThreadShare { ith: ith.unsigned_abs() as usize, nth: nth.unsigned_abs() as usize };
    if share.ith == 0 {
        // SAFETY: thread 0 alone touches `inner` mutably, and no other thread reads it before the barrier below.
        start(lane, node, dst, unsafe { &mut *lane.inner.get() });
    }
    let activations = lane.activations.as_ptr();
    convert(&node.kernels, dst.src(1).expect("MUL_MAT_ID has activations"), activations, share);
    let mut turn = 0;
    if share.ith == 0 {
        // SAFETY: as above.
        publish(lane, node, dst, unsafe { &mut *lane.inner.get() }, &lane.waves[0]);
    }
    loop {
        lane.barrier.wait(share.nth);
        let wave = &lane.waves[turn];
        if wave.failed.load(Ordering::Relaxed) {
            return;
        }
        let last = wave.last.load(Ordering::Relaxed);
        // SAFETY: thread 0 filled this wave before the barrier and fills the other one next.
        let items = unsafe { &*wave.items.get() };
        compute(node, dst, lane.routing(), items, &wave.next_task, activations, lane.blocked.as_ptr(), share);
        if last {
            // Leases stay until the next node's `start` or the end of the run: other threads may still compute.
            if share.ith == 0 {
                // SAFETY: null, or within the executor's list, which does not change during the run.
                let next = unsafe { node.next.as_ref() };
                // SAFETY: thread 0 alone touches `inner` mutably; the store is lent by `begin` for the run.
                let store = unsafe { &mut *(*lane.inner.get()).store };
                store.computing(Computing::Dense(next.map(ExpertNode::a_block)));
            }
            return;
        }
        turn ^= 1;
        if share.ith == 0 {
            // SAFETY: as above; the other threads read the previous wave only.
            publish(lane, node, dst, unsafe { &mut *lane.inner.get() }, &lane.waves[turn]);
        }
    }
}

/// Reads the router's choice and asks for the bytes: ours, then those of the block's other matrices.
fn start(lane: &ExpertLane, node: &ExpertNode, dst: Tensor<'_>, inner: &mut Inner) {
    // SAFETY: the layout outlives the run.
    let tensor = unsafe { &*node.tensor };
    let stop = inner.stop;
    // SAFETY: lent by `begin` for the run.
    unsafe { &mut *inner.store }.computing(Computing::Experts(node.a_block()));
    // ggml's barrier between nodes: nobody computes from what earlier nodes leased.
    inner.quiet = true;
    let attempt = || -> Result<(), BackendError> {
        let ids = dst.src(2).expect("MUL_MAT_ID has ids");
        // SAFETY: no other thread reads the routing before the node's first barrier.
        let first_of_block = unsafe { &mut *lane.routing.get() }.read(ids, node.experts, &tensor.name)?;
        inner.how = lane.routing().how();
        if first_of_block {
            // SAFETY: the layout outlives the run.
            let siblings = node.siblings().iter().map(|sibling| unsafe { (*sibling.tensor).block(0) });
            let firsts = std::iter::once(tensor.block(0)).chain(siblings);
            // SAFETY: lent by `begin` for the run, and used by thread 0 only.
            unsafe { &mut *inner.observer }.block(firsts, node.experts, lane.routing());
        }
        // SAFETY: lent by `begin` for the run.
        let store = unsafe { &mut *inner.store };
        // All threads have left earlier nodes: their leases can go.
        for earlier in &mut inner.fetches[..node.fetch] {
            if earlier.accepted > 0 {
                store.release(&mut earlier.fetch);
                earlier.accepted = 0;
            }
        }
        let touched = lane.routing().touched();
        let complete = request(inner, store, touched, tensor, node.fetch)?;
        if complete {
            for sibling in node.siblings() {
                // SAFETY: the layout outlives the run.
                if !request(inner, store, touched, unsafe { &*sibling.tensor }, sibling.fetch)? {
                    break;
                }
            }
        }
        Ok(())
    };
    lane.attempt(node, stop, attempt);
}

/// Starts (or goes on with) a node's fetch; true when all its touched experts are leased or on the way.
fn request(
    inner: &mut Inner,
    store: &mut Store,
    touched: &[u32],
    tensor: &ManagedTensor,
    fetch: usize,
) -> Result<bool, BackendError> {
    let state = &mut inner.fetches[fetch];
    if state.accepted == 0 {
        inner.blocks.clear();
        inner.blocks.extend(touched[state.from..].iter().map(|&e| tensor.block(e)));
        state.accepted = store.start_as(&mut state.fetch, &inner.blocks, inner.how)?;
    }
    Ok(state.from + state.accepted == touched.len())
}

/// Thread 0: waits until at least one expert is there and hands out all that are.
fn publish(lane: &ExpertLane, node: &ExpertNode, dst: Tensor<'_>, inner: &mut Inner, wave: &Wave) {
    // SAFETY: the threads are behind this wave's previous use by two barriers.
    let items = unsafe { &mut *wave.items.get() };
    items.clear();
    let stop = inner.stop;
    if !lane.failure.is_any() {
        lane.attempt(node, stop, || collect(lane, node, dst, inner, items, &wave.last));
    }
    wave.failed.store(lane.failure.is_any(), Ordering::Relaxed);
    wave.next_task.store(0, Ordering::Relaxed);
}

fn collect(
    lane: &ExpertLane,
    node: &ExpertNode,
    dst: Tensor<'_>,
    inner: &mut Inner,
    items: &mut Vec<Item>,
    last: &AtomicBool,
) -> Result<(), BackendError> {
    // SAFETY: the layout outlives the run; the store is lent by `begin`.
    let (tensor, store) = unsafe { (&*node.tensor, &mut *inner.store) };
    let touched = lane.routing().touched();
    let total = touched.len();
    let mut ready = store.next(&mut inner.fetches[node.fetch].fetch)?;
    if ready.is_none() && inner.fetches[node.fetch].from + inner.fetches[node.fetch].accepted < total {
        if !inner.quiet {
            // Others may still compute from what this would release. An empty wave: when its barrier is passed, they
            // are through.
            inner.quiet = true;
            last.store(false, Ordering::Relaxed);
            return Ok(());
        }
        // This part of the experts is computed; the next one takes its place. What was asked for ahead may be in
        // the way, so it goes first.
        for sibling in node.siblings() {
            let state = &mut inner.fetches[sibling.fetch];
            store.release(&mut state.fetch);
            state.accepted = 0;
        }
        let state = &mut inner.fetches[node.fetch];
        state.from += state.accepted;
        state.accepted = 0;
        store.release(&mut state.fetch);
        request(inner, store, touched, tensor, node.fetch)?;
        if inner.fetches[node.fetch].accepted == 0 {
            return Err(BackendError::NoRoom { tensor: tensor.name.clone() });
        }
        ready = store.next(&mut inner.fetches[node.fetch].fetch)?;
    }
    inner.quiet = false;
    let from = inner.fetches[node.fetch].from;
    while let Some(block) = ready {
        let touched = from + block.index;
        let weights: *const c_void = block.data.cast();
        items.push(Item { touched, weights, blocked: takes_blocked(lane, dst, weights, touched) });
        ready = store.try_next(&mut inner.fetches[node.fetch].fetch)?;
    }
    let state = &inner.fetches[node.fetch];
    last.store(state.from + state.accepted == total && state.fetch.is_exhausted(), Ordering::Relaxed);
    Ok(())
}

/// Whether ggml's blocked kernel takes this expert: asked for the share of a thread that has no rows.
fn takes_blocked(lane: &ExpertLane, dst: Tensor<'_>, weights: *const c_void, touched: usize) -> bool {
    let nobody = ThreadShare { ith: 0, nth: c_int::MAX as usize };
    let rows = lane.routing().rows(touched);
    // SAFETY: with so many threads the first has no rows: nothing is read or written, only the kernel's conditions
    // are evaluated.
    unsafe {
        BlockedExpert::compute(dst, weights, rows, lane.activations.as_ptr(), lane.blocked.as_ptr(), nobody)
    }
}
