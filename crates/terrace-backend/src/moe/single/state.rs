//! Nodes of single expert products, and the state that ggml's threads share.

use super::super::waves::Waves;
use super::compute::Item;
use super::sizes::ScratchSizes;
use crate::error::BackendError;
use crate::failure::Failure;
use crate::layout::ManagedTensor;
use crate::observe::observer::RoutingObserver;
use crate::routing::Routing;
use crate::scratch::Scratch;
use std::cell::UnsafeCell;
use terrace_ggml::cpu::{Kernels, Stop};
use terrace_kernels::matmul::Product;
use terrace_model::LayerId;
use terrace_store::{BlockId, Fetch, Store, Use};

/// The data of a MUL_MAT_ID node, fixed before the run.
pub struct ExpertNode {
    pub shared: *const ExpertRun,
    pub tensor: *const ManagedTensor,
    pub kernels: Kernels,
    /// Tiles that multiply experts with many rows.
    pub tile: Option<Product>,
    pub experts: u32,
    /// Index of this node among the graph's expert nodes, and of its fetch among the run's fetches.
    pub fetch: usize,
    /// All expert nodes of the graph, and the end of this node's MoE block (nodes with the same
    /// ids) among them. The blocks of later nodes in it are requested together with this node's.
    pub nodes: *const ExpertNode,
    pub block_end: usize,
    /// The next node; null after the last.
    pub next: *const ExpertNode,
}

impl ExpertNode {
    /// A block of the store that belongs to this node's layer.
    pub fn a_block(&self) -> BlockId {
        // SAFETY: the layout outlives the graph's call.
        unsafe { (*self.tensor).block(0) }
    }

    /// Its layer, if the weights' name has one.
    pub fn layer(&self) -> Option<LayerId> {
        // SAFETY: the layout outlives the graph's call.
        unsafe { (*self.tensor).layer }
    }

    /// The later nodes of the same MoE block.
    pub fn siblings(&self) -> &[Self] {
        let first = self.fetch + 1;
        // SAFETY: `nodes` is the executor's list, complete and unchanged during the run; `fetch` is
        // this node's index in it and `block_end` at most its length.
        unsafe { std::slice::from_raw_parts(self.nodes.add(first), self.block_end - first) }
    }
}

/// State of all expert nodes of a graph run, shared by ggml's threads.
///
/// Thread 0 owns `inner` and writes `routing`; the other threads read the latter after a barrier.
pub struct ExpertRun {
    pub inner: UnsafeCell<Inner>,
    /// Written by thread 0 before a node's first barrier, read by all after it.
    pub routing: UnsafeCell<Routing>,
    pub waves: Waves<Item>,
    pub failure: Failure,
    pub activations: Scratch,
    pub blocked: Scratch,
    /// Activations that are quantised for tiles, and a panel of weights for each thread.
    pub tiled: Scratch,
    pub panels: Scratch,
}

/// State that only thread 0 uses.
pub struct Inner {
    pub store: *mut Store,
    pub observer: *mut RoutingObserver,
    pub stop: *const Stop,
    pub fetches: Vec<NodeFetch>,
    pub blocks: Vec<BlockId>,
    /// Use of the node's experts.
    pub how: Use,
    /// True if no thread can be computing from this node's leases, so that they may be released.
    pub quiet: bool,
}

impl Default for ExpertRun {
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
            waves: Waves::default(),
            failure: Failure::default(),
            activations: Scratch::default(),
            blocked: Scratch::default(),
            tiled: Scratch::default(),
            panels: Scratch::default(),
        }
    }
}

/// The fetch of one node: `accepted` touched experts, beginning at `from`, are leased or on their
/// way.
#[derive(Default)]
pub struct NodeFetch {
    pub fetch: Fetch,
    /// First touched expert of the fetch in progress.
    pub from: usize,
    pub accepted: usize,
}

// SAFETY: the pointers in Inner are set for the time of one run by the executor that owns it and
// the store; access follows the protocol described at ExpertRun.
unsafe impl Send for ExpertRun {}
// SAFETY: as for Send.
unsafe impl Sync for ExpertRun {}

impl ExpertRun {
    /// Prepares for a graph with `nodes` expert nodes that need scratch of these sizes at most, and so many
    /// threads.
    pub fn prepare(&mut self, nodes: usize, sizes: ScratchSizes, threads: usize) {
        let inner = self.inner.get_mut();
        if inner.fetches.len() < nodes {
            inner.fetches.resize_with(nodes, NodeFetch::default);
        }
        self.activations.reserve(sizes.activations);
        self.blocked.reserve(sizes.blocked);
        if sizes.tiled > 0 {
            self.tiled.reserve(sizes.tiled);
            self.panels.reserve(threads * Product::scratch_bytes());
        }
    }

    /// Forgets the last run.
    pub fn reset(&mut self) {
        self.routing.get_mut().reset();
        self.failure.reset();
    }

    /// Lends the store and the observer of routing for a run; `stop` ends the graph when a node
    /// fails.
    pub fn begin(&mut self, store: &mut Store, observer: &mut RoutingObserver, stop: &Stop) {
        let inner = self.inner.get_mut();
        inner.store = store;
        inner.observer = observer;
        inner.stop = stop;
    }

    /// Ends a run and releases all leases.
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

    /// The router's choice.
    pub fn routing(&self) -> &Routing {
        // SAFETY: written by thread 0 in `start`, before the node's first barrier; the callers are
        // thread 0 after that, and the others after the barrier.
        unsafe { &*self.routing.get() }
    }

    /// Thread 0's part of a node.
    pub fn attempt(
        &self,
        node: &ExpertNode,
        stop: *const Stop,
        part: impl FnOnce() -> Result<(), BackendError>,
    ) {
        // SAFETY: `begin` lent the flag for the run that this is part of.
        unsafe { self.failure.attempt(node.fetch, stop, part) }
    }
}
