//! Tensors and graphs as ggml hands them to a backend: borrowed, for the duration of a call.

use crate::backend::buffer::BufferTypeHandle;
use crate::raw::abi;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::num::NonZeroU64;

/// An operation of ggml's graph language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op(sys::ggml_op);

impl Op {
    /// Nothing: the node is skipped.
    pub const NONE: Self = Self(sys::GGML_OP_NONE);
    /// `dst = src0ᵀ · src1`.
    pub const MUL_MAT: Self = Self(sys::GGML_OP_MUL_MAT);
    /// The same with one matrix per row, chosen by ids (`src2`).
    pub const MUL_MAT_ID: Self = Self(sys::GGML_OP_MUL_MAT_ID);
    /// Rows of `src0` by the indices in `src1`, as F32.
    pub const GET_ROWS: Self = Self(sys::GGML_OP_GET_ROWS);
    /// Sum, with rows or elements repeated where `src1` is smaller.
    pub const ADD: Self = Self(sys::GGML_OP_ADD);
    /// Rows divided by their root mean square.
    pub const RMS_NORM: Self = Self(sys::GGML_OP_RMS_NORM);
    /// Softmax.
    pub const SOFT_MAX: Self = Self(sys::GGML_OP_SOFT_MAX);
    /// A gated activation: SwiGLU and its kin.
    pub const GLU: Self = Self(sys::GGML_OP_GLU);
    /// An activation: SiLU, GELU and their kin.
    pub const UNARY: Self = Self(sys::GGML_OP_UNARY);
    /// Squares.
    pub const SQR: Self = Self(sys::GGML_OP_SQR);
    /// Limits.
    pub const CLAMP: Self = Self(sys::GGML_OP_CLAMP);
    /// A factor.
    pub const SCALE: Self = Self(sys::GGML_OP_SCALE);
    /// Element-wise product.
    pub const MUL: Self = Self(sys::GGML_OP_MUL);
    /// Sum with the row of `src1` that ids (`src2`) name: an expert's bias.
    pub const ADD_ID: Self = Self(sys::GGML_OP_ADD_ID);
    /// A function of ours, run on all threads.
    pub const CUSTOM: Self = Self(sys::GGML_OP_CUSTOM);

    /// Whether the node computes nothing (views, reshapes and the like).
    pub const fn is_view(self) -> bool {
        matches!(
            self.0,
            sys::GGML_OP_NONE
                | sys::GGML_OP_RESHAPE
                | sys::GGML_OP_VIEW
                | sys::GGML_OP_PERMUTE
                | sys::GGML_OP_TRANSPOSE
        )
    }

    /// ggml's name of it.
    pub fn name(self) -> &'static str {
        // SAFETY: any value that ggml put into a node's `op` is below GGML_OP_COUNT and names a static string.
        unsafe { CStr::from_ptr(sys::ggml_op_name(self.0)) }.to_str().unwrap_or("?")
    }
}

/// How elements are stored: ggml's number of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType(pub(crate) sys::ggml_type);

impl DataType {
    /// 32-bit floats.
    pub const F32: Self = Self(sys::GGML_TYPE_F32);
    /// 32-bit integers, as ids are.
    pub const I32: Self = Self(sys::GGML_TYPE_I32);
    /// K-quants of about 4.5 bits.
    pub const Q4_K: Self = Self(sys::GGML_TYPE_Q4_K);
    /// K-quants of about 6.6 bits.
    pub const Q6_K: Self = Self(sys::GGML_TYPE_Q6_K);
    /// K-quant activations: 256 elements, 8 bits.
    pub const Q8_K: Self = Self(sys::GGML_TYPE_Q8_K);

    /// The type with ggml's number `id`, as GGUF files and [`terrace_model::TensorType`] have it.
    pub fn from_id(id: u32) -> Option<Self> {
        (id < sys::GGML_TYPE_COUNT).then_some(Self(id))
    }

    /// Elements that are stored together: a row is whole blocks of them.
    pub fn block_elements(self) -> u64 {
        // SAFETY: plain arithmetic over a valid type.
        unsafe { sys::ggml_blck_size(self.0) }.unsigned_abs()
    }
}

/// A tensor that ggml owns, for as long as `'g` (the graph or the model it belongs to).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tensor<'g> {
    ptr: *mut sys::ggml_tensor,
    owner: PhantomData<&'g ()>,
}

impl<'g> Tensor<'g> {
    /// # Safety
    /// `ptr` points to an initialised tensor that outlives `'g` and whose fields no other thread writes during
    /// it (ggml computes a graph from one thread at a time, and its workers read only).
    pub(crate) unsafe fn from_raw(ptr: *mut sys::ggml_tensor) -> Self {
        Self { ptr, owner: PhantomData }
    }

    /// The tensor's address: an identity, and the key under which a graph's owner knows it.
    pub fn as_ptr(self) -> *mut sys::ggml_tensor {
        self.ptr
    }

    fn get(self) -> sys::ggml_tensor {
        // SAFETY: `from_raw`'s contract: initialised, alive for 'g, not written concurrently.
        unsafe { *self.ptr }
    }

    /// Operation that computes it.
    pub fn op(self) -> Op {
        // SAFETY: as in `get`.
        Op(unsafe { (*self.ptr).op })
    }

    /// Element type.
    pub fn ty(self) -> DataType {
        // SAFETY: as in `get`.
        DataType(unsafe { (*self.ptr).type_ })
    }

    /// Dimensions, fastest first.
    pub fn ne(self) -> [i64; 4] {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).ne }
    }

    /// Strides in bytes.
    pub fn nb(self) -> [usize; 4] {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).nb }
    }

    /// Where its bytes are, or the address that stands for them.
    pub fn data(self) -> *mut c_void {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).data }
    }

    /// Points the tensor at other bytes, until it is set back.
    pub fn set_data(self, data: *mut c_void) {
        // SAFETY: as in `get`; only the thread that computes the graph calls this, between runs of the workers.
        unsafe { (*self.ptr).data = data }
    }

    /// Offset in bytes into the tensor that it is a view of.
    pub fn view_offset(self) -> usize {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).view_offs }
    }

    /// The tensor whose memory this one uses: itself, or what it views.
    pub fn storage(self) -> Tensor<'g> {
        // SAFETY: ggml keeps view_src pointing at the root tensor, never at another view.
        let source = unsafe { (*self.ptr).view_src };
        if source.is_null() { self } else { Self { ptr: source, owner: PhantomData } }
    }

    /// The operation's `i`-th parameter (0-based, below 16), where that is an integer.
    pub fn int_param(self, i: usize) -> i32 {
        // SAFETY: as in `get`; the index is checked by the array.
        unsafe { (*self.ptr).op_params[i] }
    }

    /// The operation's `i`-th parameter (0-based, below 16), where that is a float.
    pub fn float_param(self, i: usize) -> f32 {
        // SAFETY: as in `get`; the index is checked by the array.
        f32::from_bits(unsafe { (*self.ptr).op_params[i] }.cast_unsigned())
    }

    /// Operand `i` (0-based, below 10).
    pub fn src(self, i: usize) -> Option<Tensor<'g>> {
        // SAFETY: as in `get`; the index is checked by the array.
        let src = unsafe { (*self.ptr).src[i] };
        (!src.is_null()).then_some(Self { ptr: src, owner: PhantomData })
    }

    /// All operands.
    pub fn sources(self) -> impl Iterator<Item = Tensor<'g>> {
        (0..10).filter_map(move |i| self.src(i))
    }

    /// The buffer type of its buffer, if it is allocated.
    pub fn buffer_type(self) -> Option<BufferTypeHandle> {
        // SAFETY: as in `get`; a non-null buffer is a live `ggml_backend_buffer`.
        unsafe {
            let buffer = (*self.ptr).buffer.cast::<abi::Buffer>();
            (!buffer.is_null()).then(|| BufferTypeHandle::from_raw((*buffer).buft))
        }
    }

    /// The context of its buffer, meaningful to the owner of the buffer type.
    pub(crate) fn buffer_context(self) -> *mut c_void {
        // SAFETY: as in `buffer_type`.
        unsafe {
            let buffer = (*self.ptr).buffer.cast::<abi::Buffer>();
            if buffer.is_null() { std::ptr::null_mut() } else { (*buffer).context }
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        let name = self.get().name;
        // SAFETY: ggml zero-terminates names within the array.
        unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
    }

    /// Its name as ggml holds it, without allocating.
    pub fn name_bytes(self) -> &'g [u8] {
        // SAFETY: as in `get`; ggml zero-terminates names within the array, which lives as long as the tensor.
        unsafe { CStr::from_ptr((&raw const (*self.ptr).name).cast()) }.to_bytes()
    }

    /// Size in bytes.
    pub fn bytes(self) -> usize {
        // SAFETY: as in `get`.
        unsafe { sys::ggml_nbytes(self.ptr) }
    }

    /// Whether the graph's owner will look at it after the run.
    pub fn is_output(self) -> bool {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).flags & c_int::try_from(sys::GGML_TENSOR_FLAG_OUTPUT).unwrap_or(0) != 0 }
    }

    /// Whether rows follow each other without gaps.
    pub fn is_contiguous(self) -> bool {
        // SAFETY: as in `get`.
        unsafe { sys::ggml_is_contiguous(self.ptr) }
    }
}

/// A node's operation and parameters, to be put back after a [`Tensor::make_custom`] or [`Tensor::make_none`].
#[derive(Clone, Copy, Debug)]
pub struct SavedOp {
    op: sys::ggml_op,
    params: [i32; 16],
}

/// What runs in a custom node: called once on each thread `ith` of `nth` with the node and the user's pointer.
pub type CustomFn = unsafe extern "C" fn(*mut sys::ggml_tensor, c_int, c_int, *mut c_void);

impl Tensor<'_> {
    /// Turns the node into one that calls `fun(node, ith, nth, userdata)` on all threads. In place, so that the
    /// graph keeps its use counts and the CPU backend its fusions.
    pub fn make_custom(self, fun: CustomFn, userdata: *mut c_void) -> SavedOp {
        // n_tasks -1 is GGML_N_TASKS_MAX: all threads.
        let params = abi::CustomOpParams { fun: Some(fun), n_tasks: -1, userdata };
        // SAFETY: as in `get`; CustomOpParams is 24 bytes and op_params holds 64, and ggml reads it back with
        // memcpy, so its alignment does not matter.
        unsafe {
            let saved = SavedOp { op: (*self.ptr).op, params: (*self.ptr).op_params };
            (*self.ptr).op = sys::GGML_OP_CUSTOM;
            std::ptr::copy_nonoverlapping(
                (&raw const params).cast::<u8>(),
                (&raw mut (*self.ptr).op_params).cast::<u8>(),
                size_of::<abi::CustomOpParams>(),
            );
            saved
        }
    }

    /// Turns the node into one that computes nothing.
    pub fn make_none(self) -> SavedOp {
        // SAFETY: as in `get`.
        unsafe {
            let saved = SavedOp { op: (*self.ptr).op, params: (*self.ptr).op_params };
            (*self.ptr).op = sys::GGML_OP_NONE;
            saved
        }
    }

    /// Undoes [`Tensor::make_custom`] and [`Tensor::make_none`].
    pub fn restore(self, saved: SavedOp) {
        // SAFETY: as in `get`.
        unsafe {
            (*self.ptr).op = saved.op;
            (*self.ptr).op_params = saved.params;
        }
    }
}

/// A compute graph, borrowed from ggml's scheduler for one call.
pub struct Graph<'g> {
    raw: *mut abi::Graph,
    owner: PhantomData<&'g ()>,
}

impl<'g> Graph<'g> {
    /// # Safety
    /// `raw` points to a graph of the pinned ggml that outlives `'g` and is not computed elsewhere meanwhile.
    pub(crate) unsafe fn from_raw(raw: *mut sys::ggml_cgraph) -> Self {
        Self { raw: raw.cast(), owner: PhantomData }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        // SAFETY: `from_raw`'s contract.
        usize::try_from(unsafe { (*self.raw).n_nodes }).unwrap_or(0)
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Node `i`, in execution order.
    ///
    /// # Panics
    /// If `i` is not below [`Graph::len`].
    pub fn node(&self, i: usize) -> Tensor<'g> {
        assert!(i < self.len());
        // SAFETY: `from_raw`'s contract; `i` is within n_nodes.
        unsafe { Tensor::from_raw(*(*self.raw).nodes.add(i)) }
    }

    /// A number that no other graph has, and this one for as long as its nodes stay as they are; `None` if nobody gave it one.
    pub fn uid(&self) -> Option<NonZeroU64> {
        // SAFETY: `from_raw`'s contract.
        NonZeroU64::new(unsafe { (*self.raw).uid })
    }

    /// How many operands of the graph's nodes the tensor is; `None` if the graph does not say.
    pub fn uses(&self, tensor: Tensor<'_>) -> Option<usize> {
        // SAFETY: `from_raw`'s contract: the graph's arrays are alive; the table has `size` keys, a bit for each that is
        // used, and a count for each (`ggml_hash_find` and `ggml_node_get_use_count` in `ggml-impl.h`).
        unsafe {
            let table = (*self.raw).visited_hash_set;
            if (*self.raw).use_counts.is_null() || table.size == 0 {
                return None;
            }
            let key = tensor.as_ptr();
            let mut at = (key as usize >> 4) % table.size;
            for _ in 0..table.size {
                if *table.used.add(at / 32) >> (at % 32) & 1 == 0 {
                    return None;
                }
                if *table.keys.add(at) == key {
                    return usize::try_from(*(*self.raw).use_counts.add(at)).ok();
                }
                at = (at + 1) % table.size;
            }
            None
        }
    }

    /// Nodes `[from, to)` as a graph that shares everything else, as ggml's own `ggml_graph_view` makes it.
    pub(crate) fn view(&self, from: usize, to: usize) -> abi::Graph {
        assert!(from <= to && to <= self.len());
        // SAFETY: `from_raw`'s contract; the range is within n_nodes.
        let whole = unsafe { *self.raw };
        abi::Graph {
            size: 0,
            n_nodes: c_int::try_from(to - from).expect("a part of an int's range"),
            n_leafs: 0,
            // SAFETY: `from` is within the array of n_nodes pointers.
            nodes: unsafe { whole.nodes.add(from) },
            grads: std::ptr::null_mut(),
            grad_accs: std::ptr::null_mut(),
            leafs: std::ptr::null_mut(),
            uid: 0,
            ..whole
        }
    }
}
