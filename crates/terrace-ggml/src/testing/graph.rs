//! Small graphs made by hand, for tests of code that takes graphs apart.

use crate::pin::abi;
use crate::tensor::{GluOp, Graph, Place, Tensor};
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use std::ptr::NonNull;

/// The place of nodes `nodes` of graph `whole`.
pub fn place(whole: usize, nodes: std::ops::Range<usize>) -> Place {
    Place { whole, start: nodes.start, end: nodes.end }
}

/// A graph over F32 vectors, each in its own memory.
pub struct TestGraph {
    context: NonNull<sys::ggml_context>,
    graph: *mut sys::ggml_cgraph,
}

impl TestGraph {
    /// An empty graph.
    ///
    /// # Panics
    /// If 1 MiB of memory is not available.
    pub fn new() -> Self {
        let params =
            sys::ggml_init_params { mem_size: 1 << 20, mem_buffer: std::ptr::null_mut(), no_alloc: false };
        // SAFETY: plain parameters; the graph lives in the context.
        unsafe {
            let context = NonNull::new(sys::ggml_init(params)).expect("a MiB of memory");
            Self { context, graph: sys::ggml_new_graph(context.as_ptr()) }
        }
    }

    /// A vector that is not a node of the graph.
    pub fn leaf(&mut self, name: &str, values: &[f32]) -> Tensor<'_> {
        // SAFETY: the context is alive and has room (ggml aborts otherwise); the new tensor has
        // memory for the values.
        unsafe {
            let n = i64::try_from(values.len()).expect("a few values");
            let tensor = sys::ggml_new_tensor_1d(self.context.as_ptr(), sys::GGML_TYPE_F32, n);
            std::ptr::copy_nonoverlapping(values.as_ptr(), (*tensor).data.cast(), values.len());
            self.named(tensor, name)
        }
    }

    /// Ones of a shape of up to three dimensions, that are not a node of the graph.
    pub fn leaf_of(&mut self, name: &str, shape: &[i64]) {
        let dim = |i: usize| shape.get(i).copied().unwrap_or(1);
        // SAFETY: as in `leaf`.
        unsafe {
            let context = self.context.as_ptr();
            let dims = [0, 1, 2, 3].map(dim);
            let tensor = sys::ggml_new_tensor(context, sys::GGML_TYPE_F32, 4, dims.as_ptr());
            let n = usize::try_from(sys::ggml_nelements(tensor)).expect("a few values");
            std::slice::from_raw_parts_mut((*tensor).data.cast::<f32>(), n).fill(1.0);
            self.named(tensor, name);
        }
    }

    /// A matrix with rows of `width` values, that is not a node of the graph.
    pub fn matrix(&mut self, name: &str, width: usize, values: &[f32]) {
        // SAFETY: as in `leaf`; the tensor has as many rows as the values fill.
        unsafe {
            let dim = |n: usize| i64::try_from(n).expect("a few values");
            let (context, rows) = (self.context.as_ptr(), values.len() / width);
            let tensor = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, dim(width), dim(rows));
            std::ptr::copy_nonoverlapping(values.as_ptr(), (*tensor).data.cast(), rows * width);
            self.named(tensor, name);
        }
    }

    /// Adds the named node that multiplies the rows of `weights` with those of `input`.
    pub fn mul_mat(&mut self, name: &str, weights: &str, input: &str) {
        // SAFETY: as in `add`.
        self.node(name, |context, this| unsafe {
            sys::ggml_mul_mat(context, this.find(weights), this.find(input))
        });
    }

    /// The experts chosen for one token.
    pub fn ids(&mut self, name: &str, ids: &[i32]) {
        // SAFETY: as in `leaf`.
        unsafe {
            let n = i64::try_from(ids.len()).expect("a few ids");
            let tensor = sys::ggml_new_tensor_2d(self.context.as_ptr(), sys::GGML_TYPE_I32, n, 1);
            std::ptr::copy_nonoverlapping(ids.as_ptr(), (*tensor).data.cast(), ids.len());
            self.named(tensor, name);
        }
    }

    /// Adds the named node that multiplies `input` with the chosen experts' matrices.
    pub fn product(&mut self, name: &str, weights: &str, input: &str, ids: &str) {
        // SAFETY: as in `add`.
        self.node(name, |context, this| unsafe {
            sys::ggml_mul_mat_id(context, this.find(weights), this.find(input), this.find(ids))
        });
    }

    /// Adds the named node that adds the chosen experts' rows of `table` to `a`.
    pub fn add_id(&mut self, name: &str, a: &str, table: &str, ids: &str) {
        // SAFETY: as in `add`.
        self.node(name, |context, this| unsafe {
            sys::ggml_add_id(context, this.find(a), this.find(table), this.find(ids))
        });
    }

    /// Adds the named node `a + b`.
    pub fn add(&mut self, name: &str, a: &str, b: &str) {
        // SAFETY: operands are tensors of the live context.
        self.node(name, |context, this| unsafe { sys::ggml_add(context, this.find(a), this.find(b)) });
    }

    /// Adds the named node `a · b`, element by element.
    pub fn mul(&mut self, name: &str, a: &str, b: &str) {
        // SAFETY: as in `add`.
        self.node(name, |context, this| unsafe { sys::ggml_mul(context, this.find(a), this.find(b)) });
    }

    /// Adds the named node that is gpt-oss's gated linear unit of `gate` and `up`.
    pub fn swiglu_oai(&mut self, name: &str, gate: &str, up: &str) {
        // SAFETY: as in `add`.
        self.node(name, |context, this| unsafe {
            sys::ggml_swiglu_oai(context, this.find(gate), this.find(up), 1.702, 7.0)
        });
    }

    /// Adds the named node that is a gated linear unit of the halves of `a`'s rows: first what is multiplied, if `swapped`.
    pub fn glu(&mut self, name: &str, op: GluOp, a: &str, swapped: bool) {
        // SAFETY: as in `add`.
        self.node(name, |context, this| unsafe { sys::ggml_glu(context, this.find(a), op.0, swapped) });
    }

    /// Adds the named node that copies `a` into `b`, a view of `b`.
    pub fn copy(&mut self, name: &str, a: &str, b: &str) {
        // SAFETY: as in `add`.
        self.node(name, |context, this| unsafe { sys::ggml_cpy(context, this.find(a), this.find(b)) });
    }

    fn node(
        &mut self,
        name: &str,
        make: impl FnOnce(*mut sys::ggml_context, &Self) -> *mut sys::ggml_tensor,
    ) {
        let tensor = make(self.context.as_ptr(), self);
        // SAFETY: the tensor was just made in the graph's context.
        unsafe {
            self.named(tensor, name);
            sys::ggml_build_forward_expand(self.graph, tensor);
        }
    }

    /// # Safety
    /// `tensor` belongs to this context.
    unsafe fn named(&self, tensor: *mut sys::ggml_tensor, name: &str) -> Tensor<'_> {
        let name = CString::new(name).expect("a name without zeros");
        // SAFETY: the caller's contract.
        unsafe { Tensor::from_raw(sys::ggml_set_name(tensor, name.as_ptr())) }
    }

    fn find(&self, name: &str) -> *mut sys::ggml_tensor {
        let c_name = CString::new(name).expect("a name without zeros");
        // SAFETY: the context is alive.
        let tensor = unsafe { sys::ggml_get_tensor(self.context.as_ptr(), c_name.as_ptr()) };
        assert!(!tensor.is_null(), "no tensor {name}");
        tensor
    }

    /// The tensor of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn tensor(&self, name: &str) -> Tensor<'_> {
        // SAFETY: belongs to the live context, borrowed with self.
        unsafe { Tensor::from_raw(self.find(name)) }
    }

    /// The current values of a tensor.
    pub fn values(&self, name: &str) -> Vec<f32> {
        let tensor = self.tensor(name);
        let n = tensor.bytes() / size_of::<f32>();
        // SAFETY: a contiguous F32 vector in the context's memory, or at an address of the same
        // size set by `set_data`.
        unsafe { std::slice::from_raw_parts(tensor.data().cast::<f32>(), n) }.to_vec()
    }

    /// Gives the graph a number, as ggml's scheduler does; 0 means none.
    pub fn set_uid(&mut self, number: u64) {
        // SAFETY: the live graph, laid out as `abi` says (tests/abi.rs), which nothing borrows.
        unsafe { (*self.graph.cast::<abi::Graph>()).uid = number };
    }

    /// The graph of all nodes so far.
    pub fn graph(&self) -> Graph<'_> {
        // SAFETY: belongs to the live context, borrowed with self.
        unsafe { Graph::from_raw(self.graph) }
    }
}

impl Default for TestGraph {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestGraph {
    fn drop(&mut self) {
        // SAFETY: owned; everything borrowed from it is gone.
        unsafe { sys::ggml_free(self.context.as_ptr()) };
    }
}
