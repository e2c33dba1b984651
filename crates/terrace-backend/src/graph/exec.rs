//! Runs a graph in segments: provides the weights that its nodes need, and lets ggml's CPU backend
//! compute.

use super::choices::Choices;
use super::pass::{End, Pass, layers_of};
use super::products::Products;
use super::scan::{Nodes, Scan};
use super::skip::LayerSkips;
use crate::error::BackendError;
use crate::hot::Lanes;
use crate::layout::Layout;
use crate::memory::places::Places;
use crate::memory::weights::Weights;
use crate::moe::fused::BlockRun;
use crate::moe::single::ExpertRun;
use crate::observe::observer::RoutingObserver;
use crate::observe::pieces::Borders;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_ggml::Graph;
use terrace_ggml::backend::{AbortCallback, Backend, ComputeError, parked};
use terrace_ggml::cpu::{CpuBackend, RunStatus};
use terrace_model::LayerId;
use terrace_store::{Computing, Store};

/// The Terrace backend of one llama context.
pub struct Executor {
    cpu: CpuBackend,
    places: Places,
    abort: AbortCallback,
    /// State of expert nodes that are computed product by product.
    expert_run: Box<ExpertRun>,
    /// State of fused blocks.
    block_run: Box<BlockRun>,
    nodes: Nodes,
    products: Products,
    choices: Choices,
    skips: LayerSkips,
    /// The layout that the node lists point into.
    layout: Option<Arc<Layout>>,
    prepared: Option<Prepared>,
    pass: Pass,
}

/// What the node lists were made from. Decoding computes the same graph repeatedly.
struct Prepared {
    /// `None` if the graph has no number, and cannot be recognised when it comes again.
    graph: Option<NonZeroU64>,
    threads: usize,
    weights: Option<Arc<Weights>>,
    /// The model, even if the graph needs no weights from the store.
    model: Option<Arc<Weights>>,
    /// Its skipped layers.
    skipped: Arc<[u32]>,
    /// The layers of its first and its last node that belong to one.
    layers: [Option<LayerId>; 2],
}

// SAFETY: the raw pointers in the node lists are set and used within one `compute` call.
unsafe impl Send for Executor {}

impl Executor {
    /// Makes a backend with `threads` threads that recognises weights in buffers of these types.
    pub fn new(places: Places, threads: usize) -> Self {
        Self {
            cpu: CpuBackend::new(threads),
            places,
            abort: AbortCallback::default(),
            expert_run: Box::default(),
            block_run: Box::default(),
            nodes: Nodes::default(),
            products: Products::default(),
            choices: Choices::default(),
            skips: LayerSkips::default(),
            layout: None,
            prepared: None,
            pass: Pass::default(),
        }
    }

    /// Makes the node lists of the graph, and returns the weights that it needs from the store, if
    /// any. Skipped layers are left out of the graph until they are restored.
    fn prepare(&mut self, graph: &Graph<'_>) -> Result<Option<Arc<Weights>>, BackendError> {
        let threads = self.cpu.threads();
        if let Some(prepared) = &self.prepared
            && graph.uid().is_some()
            && graph.uid() == prepared.graph
            && prepared.threads == threads
            && prepared
                .model
                .as_ref()
                .is_none_or(|model| Arc::ptr_eq(&model.skipped_layers(), &prepared.skipped))
        {
            self.skips.rewrite(graph);
            return Ok(prepared.weights.clone());
        }
        self.prepared = None;
        let model = self.places.computed_by(graph);
        let skipped = model.as_ref().map_or_else(|| Arc::new([]) as _, |model| model.skipped_layers());
        self.skips.find(graph, &skipped)?;
        // Before the scan, because skipped layers need no weights.
        self.skips.rewrite(graph);
        let kept = || model.clone().filter(|model| model.lanes().as_ref().is_some_and(Lanes::keep_experts));
        let mut weights = self.places.managed_by(graph).or_else(kept);
        self.layout = weights.as_ref().map(|weights| weights.layout());
        self.nodes.clear();
        if let (Some(using), Some(layout)) = (&weights, self.layout.clone()) {
            self.scan(graph, &layout, &using.store(), using.lanes().as_mut())?;
            if self.nodes.is_empty() {
                weights = None;
            }
        }
        let (places, nodes) = (self.places, &self.nodes);
        self.products
            .find(graph, threads, |node, weights| places.is_there(weights) && !nodes.is_rewritten(node));
        self.choices.find(graph, |node| nodes.is_rewritten(node));
        tracing::debug!(nodes = graph.len(), products = self.products.len(), "products with our kernels");
        let (uid, layers) = (graph.uid(), layers_of(graph));
        self.prepared =
            Some(Prepared { graph: uid, threads, weights: weights.clone(), model, skipped, layers });
        Ok(weights)
    }

    /// Makes the node lists, and reserves scratch for the nodes.
    fn scan(
        &mut self,
        graph: &Graph<'_>,
        layout: &Layout,
        store: &Store,
        lanes: Option<&mut Lanes>,
    ) -> Result<(), BackendError> {
        let threads = self.cpu.threads();
        let (places, stop) = (self.places, self.cpu.stop_flag());
        let scan = Scan { graph, layout, places, threads, lanes: lanes.is_some(), stop };
        let sizes = self.nodes.find(&scan, store)?;
        self.nodes.fuse(&scan, store, lanes, &raw const *self.block_run);
        let Nodes { experts, fused, rows, .. } = &self.nodes;
        if fused.is_empty() {
            self.expert_run.prepare(experts.len(), sizes.activations, sizes.blocked);
        } else {
            self.block_run.prepare(graph, fused, threads);
        }
        tracing::debug!(
            nodes = graph.len(),
            moe_blocks = fused.len(),
            routers = fused.iter().filter(|node| node.fused.router.is_some()).count(),
            expert_nodes = experts.len(),
            row_nodes = rows.len(),
            "computing a new graph"
        );
        Ok(())
    }

    /// Runs nodes in segments, each ending before a node whose matrix has not arrived.
    fn run(
        &mut self,
        graph: &Graph<'_>,
        store: &mut Store,
        observer: &mut RoutingObserver,
        mut lanes: Option<&mut Lanes>,
    ) -> Result<RunStatus, BackendError> {
        let mut from = 0;
        while from < graph.len() {
            store.computing(Computing::Dense(self.nodes.next_managed(from)));
            self.nodes.matrices.ask_ahead(store, self.room_for_matrices(store))?;
            let to = self.nodes.matrices.bind(store, graph)?;
            let to = self.nodes.end_with_room(graph, store, from, to);
            if to > from {
                let stop = self.cpu.stop_flag();
                if self.nodes.fused.is_empty() {
                    self.expert_run.begin(store, observer, stop);
                } else {
                    self.block_run.begin(store, observer, lanes.as_deref_mut(), stop);
                }
                let status = self.cpu.run(graph, from, to);
                self.expert_run.end(store);
                self.block_run.end(store);
                if status != RunStatus::Done {
                    return Ok(status);
                }
                from = to;
            }
            if self.abort.requested() {
                return Ok(RunStatus::Stopped);
            }
            self.nodes.matrices.release_before(store, graph, from);
        }
        self.nodes.matrices.prefetch_first(store, self.room_for_matrices(store) / 2)?;
        Ok(RunStatus::Done)
    }

    /// Bytes of slots for matrices. Matrices and experts share the slots, which may shrink while a
    /// graph runs: if a graph has both, half is left to the experts.
    fn room_for_matrices(&self, store: &Store) -> u64 {
        let slots = store.capacity().bytes();
        if self.nodes.has_experts() { slots / 2 } else { slots }
    }

    fn compute_managed(&mut self, graph: &Graph<'_>, weights: &Weights) -> Result<RunStatus, BackendError> {
        let mut store = weights.store();
        self.nodes.rewrite(graph, &raw const *self.expert_run, &mut store);
        self.expert_run.reset();
        self.block_run.reset();
        let mut observer = weights.observer();
        if let Some(usage) = &observer.usage {
            self.choices.rewrite(graph, usage);
        }
        let mut lanes = weights.lanes();
        if self.pass.is_first() {
            store.next_token();
            observer.pass();
            if let Some(lanes) = lanes.as_mut() {
                lanes.pass();
            }
        }
        if let Some(lanes) = lanes.as_mut() {
            lanes.bypass(&self.nodes.bypassed);
        }
        let result = self.run(graph, &mut store, &mut observer, lanes.as_mut());
        store.computed();
        weights.add_foretold(self.block_run.take_foretold());
        self.nodes.matrices.abandon(&mut store, graph);
        self.expert_run.end(&mut store);
        self.block_run.end(&mut store);
        self.nodes.restore(graph);
        self.choices.restore(graph);
        if let (Some(lanes), Ok(RunStatus::Done)) = (lanes.as_mut(), &result) {
            lanes.between(&mut store);
        }
        result
    }
}

impl Executor {
    /// Counts what other backends have computed since the last piece.
    fn count_piece(&self, last: End, began: Instant) {
        let Some(Prepared { model: Some(model), layers, .. }) = &self.prepared else { return };
        let borders = Borders { after: last.layer, before: layers[0] };
        let mut store = model.store();
        model.pieces().add(borders, last.at, began, &mut store);
    }

    /// Computes a graph that needs nothing from the store.
    fn compute_plain(&mut self, graph: &Graph<'_>) -> RunStatus {
        let Self { cpu, prepared, choices, .. } = self;
        let model = prepared.as_ref().and_then(|prepared| prepared.model.as_ref());
        if let Some(model) = model {
            model.store().computing(Computing::Dense(None));
            if let Some(usage) = &model.observer().usage {
                choices.rewrite(graph, usage);
            }
        }
        let status = cpu.run(graph, 0, graph.len());
        choices.restore(graph);
        if let Some(model) = model {
            model.store().computed();
        }
        status
    }
}

impl Backend for Executor {
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError> {
        let began = Instant::now();
        self.cpu.stop_flag().store(false, Ordering::Relaxed);
        let place = graph.place();
        let between = self.pass.begin(place);
        let status = self.prepare(graph).and_then(|weights| {
            if let Some(last) = between {
                self.count_piece(last, began);
            }
            self.products.rewrite(graph, self.cpu.stop_flag());
            match weights {
                None => Ok(self.compute_plain(graph)),
                Some(weights) => self.compute_managed(graph, &weights),
            }
        });
        self.products.restore(graph);
        self.skips.restore(graph);
        let status = status.map_err(|error| ComputeError::Failed(Box::new(error)))?;
        match status {
            RunStatus::Done => {
                if let Some(Prepared { model: Some(model), layers, .. }) = &self.prepared {
                    let at = Instant::now();
                    self.pass.end(place, at, layers[1]);
                    model.pieces().ended(at, layers[1]);
                }
                Ok(())
            }
            RunStatus::Failed(code) => Err(ComputeError::Failed(Box::new(BackendError::Cpu(code)))),
            RunStatus::Stopped => match parked::take() {
                // One of Terrace's nodes stopped the run.
                Some(error) => Err(ComputeError::Failed(error)),
                None => Err(ComputeError::Interrupted),
            },
        }
    }

    fn set_threads(&mut self, threads: usize) {
        self.cpu.set_threads(threads);
        // llama.cpp does this whenever it has a graph computed.
        self.pass.announce();
    }

    fn set_abort(&mut self, abort: AbortCallback) {
        self.abort = abort;
        self.cpu.set_abort(abort);
    }
}
