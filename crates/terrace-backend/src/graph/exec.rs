//! Runs a graph: finds what needs managed weights, brings it, and lets ggml's CPU backend compute.

use crate::block::{Block, ExpertProduct};
use crate::error::BackendError;
use crate::graph::matrices::MatrixQueue;
use crate::graph::products::Products;
use crate::graph::rows::{self, RowsNode};
use crate::graph::skip::LayerSkips;
use crate::hot::Lanes;
use crate::memory::buffers::ManagedBuffer;
use crate::memory::places::Places;
use crate::memory::weights::{Cut, Layout, ManagedTensor, Weights};
use crate::moe::fused::{self, FusedLane, FusedNode, Router};
use crate::moe::single::compute as expert_kernels;
use crate::moe::single::{self as experts, ExpertLane, ExpertNode};
use crate::observe::observer::RoutingObserver;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_ggml::backend::buffer::buffer_of;
use terrace_ggml::backend::device::{AbortCallback, Backend, ComputeError};
use terrace_ggml::backend::parked;
use terrace_ggml::cpu::blocked::BlockedExpert;
use terrace_ggml::cpu::{CpuBackend, Kernels, RunStatus, ToFloat, custom_node};
use terrace_ggml::{Graph, Op, SavedOp, Tensor};
use terrace_store::{BlockId, Computing, Store};

/// The Terrace backend of one llama context.
pub struct Executor {
    cpu: CpuBackend,
    places: Places,
    abort: AbortCallback,
    lane: Box<ExpertLane>,
    fused: Box<FusedLane>,
    fused_nodes: Vec<FusedNode>,
    expert_nodes: Vec<ExpertNode>,
    row_nodes: Vec<RowsNode>,
    rewrites: Vec<Rewrite>,
    matrices: MatrixQueue,
    products: Products,
    skips: LayerSkips,
    /// What the node lists point into.
    layout: Option<Arc<Layout>>,
    prepared: Option<Prepared>,
}

/// What the node lists were made from: a decode computes the same graph again and again.
struct Prepared {
    graph: NonZeroU64,
    threads: usize,
    weights: Option<Arc<Weights>>,
    /// The model, even where it needs no weights from the store.
    model: Option<Arc<Weights>>,
    /// Its layers that were left out.
    skipped: Arc<[u32]>,
}

/// A node that runs as one of ours.
struct Rewrite {
    node: usize,
    saved: Option<SavedOp>,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Experts(usize),
    Fused(usize),
    /// Computed by a fused node.
    Nothing,
    Rows(usize),
}

// SAFETY: the raw pointers in the node lists are set and used within one `compute` call.
unsafe impl Send for Executor {}

impl Executor {
    /// A backend over `threads` threads that recognises weights in buffers of these types.
    pub fn new(places: Places, threads: usize) -> Self {
        Self {
            cpu: CpuBackend::new(threads),
            places,
            abort: AbortCallback::default(),
            lane: Box::default(),
            fused: Box::default(),
            fused_nodes: Vec::new(),
            expert_nodes: Vec::new(),
            row_nodes: Vec::new(),
            rewrites: Vec::new(),
            matrices: MatrixQueue::default(),
            products: Products::default(),
            skips: LayerSkips::default(),
            layout: None,
            prepared: None,
        }
    }

    fn managed_buffer<'g>(&self, tensor: Tensor<'g>) -> Option<&'g ManagedBuffer> {
        buffer_of(tensor.storage(), self.places.managed)?.as_any().downcast_ref()
    }

    /// Which managed tensor an operand's bytes belong to.
    fn managed_tensor<'w>(&self, operand: Tensor<'_>, layout: &'w Layout) -> Option<&'w ManagedTensor> {
        let index = self.managed_buffer(operand)?.index_of(operand.storage())?;
        layout.tensors().get(index as usize)
    }

    fn weights_of(&self, graph: &Graph<'_>) -> Option<Arc<Weights>> {
        (0..graph.len())
            .flat_map(|i| graph.node(i).sources())
            .find_map(|operand| self.managed_buffer(operand))
            .map(|buffer| Arc::clone(buffer.weights()))
    }

    /// The model that the graph computes, by whichever of its weights comes first.
    fn model_of(&self, graph: &Graph<'_>) -> Option<Arc<Weights>> {
        let mut operands = (0..graph.len()).flat_map(|i| graph.node(i).sources());
        operands.find_map(|operand| self.places.model_of(operand)).map(Arc::clone)
    }

    /// The weights that the graph needs, with the node lists made for it; none if it needs none of ours. Skipped layers
    /// are left out of the graph, until they are restored.
    fn prepare(&mut self, graph: &Graph<'_>) -> Result<Option<Arc<Weights>>, BackendError> {
        let threads = self.cpu.threads();
        if let Some(prepared) = &self.prepared
            && graph.uid() == Some(prepared.graph)
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
        let model = self.model_of(graph);
        let skipped = model.as_ref().map_or_else(|| Arc::new([]) as _, |model| model.skipped_layers());
        self.skips.find(graph, &skipped)?;
        // Before the scan: what is left out needs no weights.
        self.skips.rewrite(graph);
        let weights = self.weights_of(graph);
        self.layout = weights.as_ref().map(|weights| weights.layout());
        if let (Some(weights), Some(layout)) = (&weights, self.layout.clone()) {
            self.scan(graph, &layout, &mut weights.store(), weights.lanes().as_mut())?;
        }
        self.find_products(graph);
        self.prepared =
            graph.uid().map(|graph| Prepared { graph, threads, weights: weights.clone(), model, skipped });
        Ok(weights)
    }

    /// Finds the products with weights whose bytes are in memory for good.
    fn find_products(&mut self, graph: &Graph<'_>) {
        let mut products = std::mem::take(&mut self.products);
        products.find(graph, self.cpu.threads(), |weights| self.places.is_there(weights));
        self.products = products;
        tracing::debug!(nodes = graph.len(), products = self.products.len(), "products of ours");
    }

    /// Sorts the graph's uses of managed weights into expert nodes, row nodes and whole matrices.
    fn scan(
        &mut self,
        graph: &Graph<'_>,
        layout: &Layout,
        store: &mut Store,
        lanes: Option<&mut Lanes>,
    ) -> Result<(), BackendError> {
        self.expert_nodes.clear();
        self.fused_nodes.clear();
        self.row_nodes.clear();
        self.rewrites.clear();
        self.matrices.clear();
        let (mut activation_bytes, mut blocked_bytes) = (0, 0);
        let mut block_start = (0, std::ptr::null_mut());
        for i in 0..graph.len() {
            let node = graph.node(i);
            if node.op().is_view() {
                continue;
            }
            for (position, operand) in node.sources().enumerate() {
                let Some(tensor) = self.managed_tensor(operand, layout) else { continue };
                match (node.op(), tensor.cut) {
                    (Op::MUL_MAT_ID, Cut::PerExpert { experts })
                        if position == 0 && operand.storage() == operand =>
                    {
                        let kernels = Kernels::of(tensor.ty)
                            .filter(|kernels| expert_kernels::convertible(node, kernels))
                            .ok_or_else(|| BackendError::NoKernel {
                                tensor: tensor.name.clone(),
                                ty: format!("{:?}", tensor.ty),
                            })?;
                        activation_bytes =
                            activation_bytes.max(expert_kernels::activation_bytes(node, &kernels));
                        blocked_bytes =
                            blocked_bytes.max(BlockedExpert::scratch_bytes(node, self.cpu.threads()));
                        let fetch = self.expert_nodes.len();
                        // An MoE block is what shares one ids tensor: its first node asks for all of it.
                        let ids = node.src(2).map_or(std::ptr::null_mut(), Tensor::as_ptr);
                        if ids == block_start.1 {
                            for earlier in &mut self.expert_nodes[block_start.0..] {
                                earlier.block_end = fetch + 1;
                            }
                        } else {
                            block_start = (fetch, ids);
                        }
                        self.rewrites.push(Rewrite { node: i, saved: None, kind: Kind::Experts(fetch) });
                        self.expert_nodes.push(ExpertNode {
                            shared: std::ptr::null(),
                            tensor,
                            kernels,
                            experts,
                            fetch,
                            nodes: std::ptr::null(),
                            block_end: fetch + 1,
                            next: std::ptr::null(),
                        });
                    }
                    (op, Cut::PerExpert { .. }) => {
                        return Err(BackendError::WholeExperts {
                            op: op.name(),
                            tensor: tensor.name.clone(),
                        });
                    }
                    (Op::GET_ROWS, Cut::Whole)
                        if position == 0 && rows::usable(node) && !store.is_resident(tensor.block(0)) =>
                    {
                        let Some(to_float) = ToFloat::of(tensor.ty) else {
                            self.matrices.push(i, operand, tensor);
                            continue;
                        };
                        self.rewrites.push(Rewrite {
                            node: i,
                            saved: None,
                            kind: Kind::Rows(self.row_nodes.len()),
                        });
                        let (store, stop) = (std::ptr::null_mut(), self.cpu.stop_flag());
                        self.row_nodes.push(RowsNode { tensor, to_float, store, stop });
                    }
                    _ => self.matrices.push(i, operand, tensor),
                }
            }
        }
        if self.fuse(graph, store, lanes) {
            self.fused.prepare(graph, &self.fused_nodes, self.cpu.threads());
        } else {
            self.lane.prepare(self.expert_nodes.len(), activation_bytes, blocked_bytes);
        }
        tracing::debug!(
            nodes = graph.len(),
            moe_blocks = self.fused_nodes.len(),
            routers = self.fused_nodes.iter().filter(|node| node.router.is_some()).count(),
            expert_nodes = self.expert_nodes.len(),
            row_nodes = self.row_nodes.len(),
            "a graph to compute"
        );
        Ok(())
    }

    /// Makes MoE blocks of the expert nodes. All of them or none, so that one lane holds all leases: where a block is not
    /// recognised, or slots do not hold two of its experts, every node is computed by itself.
    fn fuse(&mut self, graph: &Graph<'_>, store: &Store, mut lanes: Option<&mut Lanes>) -> bool {
        let is_expert = |rewrite: &Rewrite| matches!(rewrite.kind, Kind::Experts(_));
        let node_of: Vec<usize> = self.rewrites.iter().filter(|r| is_expert(r)).map(|r| r.node).collect();
        let mut from = 0;
        while let Some(head) = self.expert_nodes.get(from) {
            let products: Vec<ExpertProduct> = self.expert_nodes[from..head.block_end]
                .iter()
                .zip(&node_of[from..head.block_end])
                .map(|(expert, &node)| ExpertProduct {
                    node,
                    tensor: expert.tensor,
                    kernels: expert.kernels,
                    experts: expert.experts,
                })
                .collect();
            let block = Block::recognise(graph, &products).filter(|b| FusedLane::suits(b, store));
            let Some(block) = block else {
                self.fused_nodes.clear();
                if let Some(lanes) = lanes {
                    lanes.not_fused();
                }
                return false;
            };
            // SAFETY: the block's tensors are the graph's.
            let ids = unsafe { custom_node(block.ids) };
            let is_there =
                |weight: Tensor<'_>| weight.storage() == weight && self.managed_buffer(weight).is_none();
            let router = Router::find(ids, is_there);
            let (index, lane) = (self.fused_nodes.len(), &raw const *self.fused);
            let top_k = ids.ne()[0].unsigned_abs() as usize;
            let hot = lanes.as_mut().and_then(|lanes| lanes.adopt(&block, top_k));
            self.fused_nodes.push(FusedNode { block, index, lane, hot, router, next: std::ptr::null() });
            from = head.block_end;
        }
        if self.fused_nodes.is_empty() {
            return false;
        }
        let nodes = self.fused_nodes.as_mut_ptr();
        for next in 1..self.fused_nodes.len() {
            // SAFETY: both within the list, which does not grow until the next graph.
            unsafe { (*nodes.add(next - 1)).next = nodes.add(next) };
        }
        self.rewrites.retain(|rewrite| !is_expert(rewrite));
        self.expert_nodes.clear();
        for (index, FusedNode { block, .. }) in self.fused_nodes.iter().enumerate() {
            let nothing = block.replaced.iter().map(|&node| (node, Kind::Nothing));
            for (node, kind) in nothing.chain([(block.last, Kind::Fused(index))]) {
                self.rewrites.push(Rewrite { node, saved: None, kind });
            }
        }
        true
    }

    fn rewrite(&mut self, graph: &Graph<'_>, store: &mut Store) {
        for node in &mut self.row_nodes {
            node.store = store;
        }
        let nodes = self.expert_nodes.as_mut_ptr();
        for i in 0..self.expert_nodes.len() {
            // SAFETY: within the list, which does not grow until the next graph; written through the pointer that the
            // nodes keep.
            unsafe {
                (*nodes.add(i)).shared = &raw const *self.lane;
                (*nodes.add(i)).nodes = nodes;
                if i > 0 {
                    (*nodes.add(i - 1)).next = nodes.add(i);
                }
            }
        }
        for rewrite in &mut self.rewrites {
            let node = graph.node(rewrite.node);
            rewrite.saved = Some(match rewrite.kind {
                Kind::Experts(i) => {
                    // SAFETY: within the list.
                    node.make_custom(experts::run, unsafe { nodes.add(i) }.cast())
                }
                Kind::Fused(i) => {
                    node.make_custom(fused::run, (&raw const self.fused_nodes[i]).cast_mut().cast())
                }
                Kind::Nothing => node.make_none(),
                Kind::Rows(i) => {
                    node.make_custom(rows::run, (&raw const self.row_nodes[i]).cast_mut().cast())
                }
            });
        }
    }

    fn restore(&mut self, graph: &Graph<'_>) {
        for rewrite in &mut self.rewrites {
            if let Some(saved) = rewrite.saved.take() {
                graph.node(rewrite.node).restore(saved);
            }
        }
    }

    /// One of the store's blocks that node `from` or the next one behind it uses; none behind the last.
    fn next_managed(&self, from: usize) -> Option<BlockId> {
        let experts = self.rewrites.iter().filter(|rewrite| rewrite.node >= from);
        let experts = experts.filter_map(|rewrite| match rewrite.kind {
            Kind::Experts(i) => Some((rewrite.node, self.expert_nodes[i].a_block())),
            Kind::Fused(i) => Some((rewrite.node, self.fused_nodes[i].a_block())),
            Kind::Nothing | Kind::Rows(_) => None,
        });
        experts.chain(self.matrices.next_use()).min_by_key(|(node, _)| *node).map(|(_, block)| block)
    }

    /// Runs nodes in segments that end where a matrix has not arrived yet.
    fn run(
        &mut self,
        graph: &Graph<'_>,
        store: &mut Store,
        observer: &mut RoutingObserver,
        mut lanes: Option<&mut Lanes>,
    ) -> Result<RunStatus, BackendError> {
        let mut from = 0;
        while from < graph.len() {
            store.computing(Computing::Dense(self.next_managed(from)));
            self.matrices.ask_ahead(store, self.room_for_matrices(store))?;
            let to = self.matrices.bind(store, graph)?;
            if to > from {
                let stop = self.cpu.stop_flag();
                if self.fused_nodes.is_empty() {
                    self.lane.begin(store, observer, stop);
                } else {
                    self.fused.begin(store, observer, lanes.as_deref_mut(), stop);
                }
                let status = self.cpu.run(graph, from, to);
                self.lane.end(store);
                self.fused.end(store);
                if status != RunStatus::Done {
                    return Ok(status);
                }
                from = to;
            }
            if self.abort.requested() {
                return Ok(RunStatus::Stopped);
            }
            self.matrices.release_before(store, graph, from);
        }
        self.matrices.prefetch_first(store, self.room_for_matrices(store) / 2)?;
        Ok(RunStatus::Done)
    }

    /// Matrices and experts share the slots, which may become fewer while a graph runs: half are left to the experts where a
    /// graph has both.
    fn room_for_matrices(&self, store: &Store) -> u64 {
        let slots = store.capacity().bytes();
        if self.expert_nodes.is_empty() && self.fused_nodes.is_empty() { slots } else { slots / 2 }
    }

    fn compute_managed(&mut self, graph: &Graph<'_>, weights: &Weights) -> Result<RunStatus, BackendError> {
        let mut store = weights.store();
        self.rewrite(graph, &mut store);
        self.lane.reset();
        self.fused.reset();
        store.next_token();
        let mut observer = weights.observer();
        observer.pass();
        let mut lanes = weights.lanes();
        if let Some(lanes) = lanes.as_mut() {
            lanes.pass();
        }
        let result = self.run(graph, &mut store, &mut observer, lanes.as_mut());
        store.computed();
        weights.add_foretold(self.fused.take_foretold());
        self.matrices.abandon(&mut store, graph);
        self.lane.end(&mut store);
        self.fused.end(&mut store);
        self.restore(graph);
        if let (Some(lanes), Ok(RunStatus::Done)) = (lanes.as_mut(), &result) {
            lanes.between(&mut store);
        }
        result
    }
}

impl Backend for Executor {
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError> {
        self.cpu.stop_flag().store(false, Ordering::Relaxed);
        let status = self.prepare(graph).and_then(|weights| {
            self.products.rewrite(graph, self.cpu.stop_flag());
            match weights {
                None => Ok(self.cpu.run(graph, 0, graph.len())),
                Some(weights) => self.compute_managed(graph, &weights),
            }
        });
        self.products.restore(graph);
        self.skips.restore(graph);
        let status = status.map_err(|error| ComputeError::Failed(Box::new(error)))?;
        match status {
            RunStatus::Done => Ok(()),
            RunStatus::Failed(code) => Err(ComputeError::Failed(Box::new(BackendError::Cpu(code)))),
            RunStatus::Stopped => match parked::take() {
                // A node of ours stopped the run.
                Some(error) => Err(ComputeError::Failed(error)),
                None => Err(ComputeError::Interrupted),
            },
        }
    }

    fn set_threads(&mut self, threads: usize) {
        self.cpu.set_threads(threads);
    }

    fn set_abort(&mut self, abort: AbortCallback) {
        self.abort = abort;
        self.cpu.set_abort(abort);
    }
}
