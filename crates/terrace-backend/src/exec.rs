//! Runs a graph: finds what needs managed weights, brings it, and lets ggml's CPU backend compute.

use crate::buffers::ManagedBuffer;
use crate::error::BackendError;
use crate::expert_kernels;
use crate::experts::{self, ExpertLane, ExpertNode};
use crate::matrices::MatrixQueue;
use crate::rows::{self, RowsNode};
use crate::trace::TraceRecorder;
use crate::weights::{Cut, ManagedTensor, Weights};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_ggml::buffer::{BufferTypeHandle, buffer_of};
use terrace_ggml::cpu::{BlockedExpert, CpuBackend, Kernels, RunStatus, ToFloat};
use terrace_ggml::device::{AbortCallback, Backend, ComputeError};
use terrace_ggml::{Graph, Op, SavedOp, Tensor, parked};
use terrace_store::Store;

/// The Terrace backend of one llama context.
pub struct Executor {
    cpu: CpuBackend,
    managed: BufferTypeHandle,
    abort: AbortCallback,
    lane: Box<ExpertLane>,
    expert_nodes: Vec<ExpertNode>,
    row_nodes: Vec<RowsNode>,
    rewrites: Vec<Rewrite>,
    matrices: MatrixQueue,
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
    Rows(usize),
}

// SAFETY: the raw pointers in the node lists are set and used within one `compute` call.
unsafe impl Send for Executor {}

impl Executor {
    /// A backend over `threads` threads that recognises weights in buffers of type `managed`.
    pub fn new(managed: BufferTypeHandle, threads: usize) -> Self {
        Self {
            cpu: CpuBackend::new(threads),
            managed,
            abort: AbortCallback::default(),
            lane: Box::default(),
            expert_nodes: Vec::new(),
            row_nodes: Vec::new(),
            rewrites: Vec::new(),
            matrices: MatrixQueue::default(),
        }
    }

    fn managed_buffer<'g>(&self, tensor: Tensor<'g>) -> Option<&'g ManagedBuffer> {
        buffer_of(tensor.storage(), self.managed)?.as_any().downcast_ref()
    }

    /// Which managed tensor an operand's bytes belong to.
    fn managed_tensor<'w>(&self, operand: Tensor<'_>, weights: &'w Weights) -> Option<&'w ManagedTensor> {
        let index = self.managed_buffer(operand)?.index_of(operand.storage())?;
        weights.layout().tensors().get(index as usize)
    }

    fn weights_of(&self, graph: &Graph<'_>) -> Option<Arc<Weights>> {
        (0..graph.len())
            .flat_map(|i| graph.node(i).sources())
            .find_map(|operand| self.managed_buffer(operand))
            .map(|buffer| Arc::clone(buffer.weights()))
    }

    /// Sorts the graph's uses of managed weights into expert nodes, row nodes and whole matrices.
    fn scan(&mut self, graph: &Graph<'_>, weights: &Weights, store: &mut Store) -> Result<(), BackendError> {
        self.expert_nodes.clear();
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
                let Some(tensor) = self.managed_tensor(operand, weights) else { continue };
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
                        self.row_nodes.push(RowsNode { tensor, to_float, store, stop: self.cpu.stop_flag() });
                    }
                    _ => self.matrices.push(i, operand, tensor),
                }
            }
        }
        self.lane.prepare(self.expert_nodes.len(), activation_bytes, blocked_bytes);
        Ok(())
    }

    fn rewrite(&mut self, graph: &Graph<'_>) {
        let nodes = self.expert_nodes.as_mut_ptr();
        for i in 0..self.expert_nodes.len() {
            // SAFETY: within the list, which does not grow until the next graph; written through the pointer that the
            // nodes keep.
            unsafe {
                (*nodes.add(i)).shared = &raw const *self.lane;
                (*nodes.add(i)).nodes = nodes;
            }
        }
        for rewrite in &mut self.rewrites {
            let node = graph.node(rewrite.node);
            rewrite.saved = Some(match rewrite.kind {
                Kind::Experts(i) => {
                    // SAFETY: within the list.
                    node.make_custom(experts::run, unsafe { nodes.add(i) }.cast())
                }
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

    /// Runs nodes in segments that end where a matrix has not arrived yet.
    fn run(
        &mut self,
        graph: &Graph<'_>,
        store: &mut Store,
        mut recorder: Option<&mut TraceRecorder>,
    ) -> Result<RunStatus, BackendError> {
        // Matrices and experts share the slots: leave half to the experts where a graph has both.
        let slots = store.stats().budget.bytes();
        let limit = if self.expert_nodes.is_empty() { slots } else { slots / 2 };
        let mut from = 0;
        while from < graph.len() {
            self.matrices.ask_ahead(store, limit)?;
            let to = self.matrices.bind(store, graph)?;
            if to > from {
                self.lane.begin(store, recorder.as_deref_mut(), self.cpu.stop_flag());
                let status = self.cpu.run(graph, from, to);
                self.lane.end(store);
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
        self.matrices.prefetch_first(store, limit / 2)?;
        Ok(RunStatus::Done)
    }

    fn compute_managed(&mut self, graph: &Graph<'_>, weights: &Weights) -> Result<RunStatus, BackendError> {
        let mut store = weights.store();
        self.scan(graph, weights, &mut store)?;
        self.rewrite(graph);
        store.next_token();
        let mut recorder = weights.recorder();
        if let Some(recorder) = &mut *recorder {
            recorder.pass();
        }
        let result = self.run(graph, &mut store, recorder.as_mut());
        self.matrices.abandon(&mut store, graph);
        self.lane.end(&mut store);
        self.restore(graph);
        result
    }
}

impl Backend for Executor {
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError> {
        self.cpu.stop_flag().store(false, Ordering::Relaxed);
        let status = match self.weights_of(graph) {
            None => self.cpu.run(graph, 0, graph.len()),
            Some(weights) => self
                .compute_managed(graph, &weights)
                .map_err(|error| ComputeError::Failed(Box::new(error)))?,
        };
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
