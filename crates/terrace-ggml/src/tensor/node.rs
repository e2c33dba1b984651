//! A tensor of a graph: its fields, and the changes made to it for a run.

use super::data_type::DataType;
use super::op::{GluOp, Op};
use crate::handles::BufferTypeHandle;
use crate::pin::{abi, layout};
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;

/// A tensor owned by ggml, borrowed for `'g` from the graph or the model that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tensor<'g> {
    ptr: *mut sys::ggml_tensor,
    owner: PhantomData<&'g ()>,
}

impl<'g> Tensor<'g> {
    /// # Safety
    /// `ptr` points to an initialised tensor that outlives `'g` and whose fields no other thread
    /// writes during it (ggml computes a graph from one thread at a time, and its workers read
    /// only).
    pub(crate) unsafe fn from_raw(ptr: *mut sys::ggml_tensor) -> Self {
        Self { ptr, owner: PhantomData }
    }

    /// The tensor's address, which identifies it, also to the graph's owner.
    pub fn as_ptr(self) -> *mut sys::ggml_tensor {
        self.ptr
    }

    fn get(self) -> sys::ggml_tensor {
        // SAFETY: `from_raw`'s contract: initialised, alive for 'g, not written concurrently.
        unsafe { *self.ptr }
    }

    /// The operation that computes it.
    pub fn op(self) -> Op {
        // SAFETY: as in `get`.
        Op::of_host(unsafe { (*self.ptr).op })
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

    /// The address of its bytes, or one that stands for them.
    pub fn data(self) -> *mut c_void {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).data }
    }

    /// Points the tensor to other bytes. The caller sets it back.
    pub fn set_data(self, data: *mut c_void) {
        // SAFETY: as in `get`; only the thread that computes the graph calls this, between runs of
        // the workers.
        unsafe { (*self.ptr).data = data }
    }

    /// Offset in bytes into the tensor that this one is a view of.
    pub fn view_offset(self) -> usize {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).view_offs }
    }

    /// The tensor whose memory this one uses: itself, or the tensor that it is a view of.
    pub fn storage(self) -> Tensor<'g> {
        // SAFETY: ggml keeps view_src pointing at the root tensor, never at another view.
        let source = unsafe { (*self.ptr).view_src };
        if source.is_null() { self } else { Self { ptr: source, owner: PhantomData } }
    }

    /// The operation's parameter `i` (0-based, below 16) as an integer.
    pub fn int_param(self, i: usize) -> i32 {
        // SAFETY: as in `get`; the index is checked by the array.
        unsafe { (*self.ptr).op_params[i] }
    }

    /// The operation's parameter `i` (0-based, below 16) as a float.
    pub fn float_param(self, i: usize) -> f32 {
        // SAFETY: as in `get`; the index is checked by the array.
        f32::from_bits(unsafe { (*self.ptr).op_params[i] }.cast_unsigned())
    }

    /// The kind of a gated linear unit: of a node whose operation is [`Op::GLU`].
    pub fn glu_op(self) -> GluOp {
        GluOp(self.int_param(0).cast_unsigned())
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
            let buffer = (*self.ptr).buffer;
            (!buffer.is_null()).then(|| BufferTypeHandle::from_raw(layout::type_of_buffer(buffer)))
        }
    }

    /// The context of its buffer, meaningful to the owner of the buffer type.
    pub(crate) fn buffer_context(self) -> *mut c_void {
        // SAFETY: as in `buffer_type`.
        unsafe {
            let buffer = (*self.ptr).buffer;
            if buffer.is_null() { std::ptr::null_mut() } else { layout::context_of_buffer(buffer) }
        }
    }

    pub fn name(self) -> String {
        let name = self.get().name;
        // SAFETY: ggml zero-terminates names within the array.
        unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
    }

    /// Its name as ggml stores it, without allocating.
    pub fn name_bytes(self) -> &'g [u8] {
        // SAFETY: as in `get`; ggml zero-terminates names within the array, which lives as long as
        // the tensor.
        unsafe { CStr::from_ptr((&raw const (*self.ptr).name).cast()) }.to_bytes()
    }

    /// Size in bytes.
    pub fn bytes(self) -> usize {
        // SAFETY: as in `get`.
        unsafe { sys::ggml_nbytes(self.ptr) }
    }

    /// Returns true if the graph's owner reads it after the run.
    pub fn is_output(self) -> bool {
        // SAFETY: as in `get`.
        unsafe { (*self.ptr).flags & c_int::try_from(sys::GGML_TENSOR_FLAG_OUTPUT).unwrap_or(0) != 0 }
    }

    /// Returns true if rows follow each other without gaps.
    pub fn is_contiguous(self) -> bool {
        // SAFETY: as in `get`.
        unsafe { sys::ggml_is_contiguous(self.ptr) }
    }
}

/// A node's operation and parameters, to be restored after [`Tensor::make_custom`] or
/// [`Tensor::make_none`].
#[derive(Clone, Copy, Debug)]
pub struct SavedOp {
    op: sys::ggml_op,
    params: [i32; 16],
}

/// The function of a custom node. Called once on each thread, with the node, `ith`, `nth` and the
/// user's pointer.
pub type CustomFn = unsafe extern "C" fn(*mut sys::ggml_tensor, c_int, c_int, *mut c_void);

impl Tensor<'_> {
    /// Turns the node into one that calls `fun(node, ith, nth, userdata)` on all threads. It is
    /// changed in place, so that the graph keeps its use counts and the CPU backend its fusions.
    pub fn make_custom(self, fun: CustomFn, userdata: *mut c_void) -> SavedOp {
        // -1 is GGML_N_TASKS_MAX: all threads.
        let params = abi::CustomOpParams { fun: Some(fun), n_tasks: -1, userdata };
        // SAFETY: as in `get`; CustomOpParams is 24 bytes and op_params holds 64, and ggml reads it
        // back with memcpy, so its alignment does not matter.
        unsafe {
            let saved = SavedOp { op: (*self.ptr).op, params: (*self.ptr).op_params };
            (*self.ptr).op = Op::CUSTOM.in_host();
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
            (*self.ptr).op = Op::NONE.in_host();
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
