//! A graph that is computed repeatedly.

use super::error::RatesError;
use super::processor::Processor;
use crate::cxx::{calls, copies, guard};
use crate::pin::abi;
use crate::pin::layout::graphs_have_numbers;
use crate::raw::scratch::ScratchContext;
use llama_cpp_sys_2 as sys;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Numbers of graphs, from half of all on: ggml counts its own up from 1.
static NUMBER: AtomicU64 = AtomicU64::new(1 << 63);

/// The result of going through the weights once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// Bytes of weights that were read.
    pub bytes: u64,
    /// Floating point operations, two for each weight and token.
    pub flops: u64,
    /// Seconds of the fastest pass, since other load on a machine only ever slows passes down.
    pub seconds: f64,
}

impl Pass {
    /// Bytes of weights per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Floating point operations per second.
    pub fn flops_per_s(&self) -> f64 {
        self.flops as f64 / self.seconds
    }
}

/// A graph whose nodes have memory.
pub(super) struct Run<'c> {
    graph: *mut sys::ggml_cgraph,
    allocator: sys::ggml_gallocr_t,
    _context: &'c ScratchContext,
}

impl<'c> Run<'c> {
    /// Makes a graph of nodes in the context, on the processor; `None` if its device cannot compute
    /// one of them.
    pub fn new(
        processor: &Processor,
        context: &'c ScratchContext,
        nodes: &[*mut sys::ggml_tensor],
        most_nodes: usize,
    ) -> Result<Option<Self>, RatesError> {
        // SAFETY: live handles; the nodes are tensors of the context, which has room for the graph
        // (ScratchContext::new).
        unsafe {
            let backend = processor.stream.raw();
            let graph = sys::ggml_new_graph_custom(context.raw(), most_nodes.max(16), false);
            if graphs_have_numbers() {
                // A server that was sent a graph with a number computes it again without being sent it.
                (*graph.cast::<abi::Graph>()).uid = NUMBER.fetch_add(1, Ordering::Relaxed);
            }
            for &node in nodes {
                sys::ggml_build_forward_expand(graph, node);
            }
            for index in 0..sys::ggml_graph_n_nodes(graph) {
                if !sys::ggml_backend_supports_op(backend, sys::ggml_graph_node(graph, index)) {
                    return Ok(None);
                }
            }
            let allocator = sys::ggml_gallocr_new(sys::ggml_backend_get_default_buffer_type(backend));
            let run = Self { graph, allocator, _context: context };
            if !sys::ggml_gallocr_alloc_graph(allocator, graph) {
                let bytes = terrace_model::ByteSize(sys::ggml_gallocr_get_buffer_size(allocator, 0) as u64);
                return Err(RatesError::Memory { device: processor.name.clone(), bytes });
            }
            Ok(Some(run))
        }
    }

    /// Computes the graph once to warm up, then repeatedly for about `time`, at least once. Returns
    /// the shortest time in seconds.
    pub fn time(&self, processor: &mut Processor, time: Duration) -> Result<f64, RatesError> {
        self.once(processor)?;
        let started = Instant::now();
        let mut seconds = f64::INFINITY;
        loop {
            let before = Instant::now();
            self.once(processor)?;
            seconds = seconds.min(before.elapsed().as_secs_f64());
            // Do not start a pass that would end long after the time.
            if started.elapsed() + before.elapsed() / 2 >= time {
                break;
            }
        }
        Ok(seconds)
    }

    fn once(&self, processor: &mut Processor) -> Result<(), RatesError> {
        let mut value = 0f32;
        // SAFETY: a live backend and a graph whose tensors all have memory; `&mut` makes their use
        // exclusive. The last node is F32 with at least one element.
        let status = guard(|| unsafe {
            let status = calls::ggml_backend_graph_compute(processor.stream.raw(), self.graph);
            // A remote device only confirms that the graph is on its way; once a result arrives,
            // the graph is done.
            let last = sys::ggml_graph_node(self.graph, -1);
            calls::ggml_backend_tensor_get(last, (&raw mut value).cast(), 0, size_of::<f32>());
            status
        });
        let status = status.map_err(|source| RatesError::Threw { device: processor.name.clone(), source })?;
        if status == sys::GGML_STATUS_SUCCESS {
            Ok(())
        } else {
            Err(RatesError::Failed { device: processor.name.clone(), status })
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // SAFETY: owned, and no run is in progress.
        unsafe { sys::ggml_gallocr_free(self.allocator) };
    }
}

/// Marks a tensor as an input, so that it keeps its memory through all passes.
///
/// # Safety
/// A live tensor.
pub(super) unsafe fn keep(tensor: *mut sys::ggml_tensor) -> *mut sys::ggml_tensor {
    // SAFETY: the caller's contract.
    unsafe {
        sys::ggml_set_input(tensor);
        // A tensor that is also an output is never overwritten by a later node.
        sys::ggml_set_output(tensor);
    }
    tensor
}

/// Writes values to a tensor that has memory. If the device fails, the graph that reads them does.
///
/// # Safety
/// A live tensor with memory for all of `values` in its own type.
pub(super) unsafe fn set<T: Copy>(tensor: *mut sys::ggml_tensor, values: &[T]) {
    // SAFETY: the caller's contract.
    let _ = unsafe { copies::put(tensor, 0, values) };
}
