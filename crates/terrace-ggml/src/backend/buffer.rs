//! Buffer types and buffers written in Rust: the traits, and the trampolines that expose them as C
//! vtables.

use super::parked;
use crate::handles::BufferTypeHandle;
use crate::pin::layout::{Layout, context_of_buffer, context_of_type, layout};
use crate::pin::{abi, hosts};
use crate::tensor::Tensor;
use llama_cpp_sys_2 as sys;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// A kind of memory for weights.
pub trait BufferType: Send + Sync + 'static {
    /// Returns true if tensors in it are plain host memory in ggml's standard layout, so that the CPU
    /// backend may touch them.
    fn is_host(&self) -> bool;

    /// Returns true if the tensor, for which memory is about to be made, belongs in this type. Tensors for
    /// which the answer is no get plain host memory, which is the CPU's.
    fn takes(&self, _tensor: Tensor<'_>) -> bool {
        true
    }

    /// Bytes to set aside for `tensor` in a buffer.
    fn alloc_size(&self, tensor: Tensor<'_>) -> usize;

    /// Makes a buffer of `size` bytes (a sum of [`BufferType::alloc_size`]s).
    ///
    /// # Errors
    /// If there is no memory. The error is parked, and the load fails.
    fn alloc(&self, size: usize) -> Result<Box<dyn Buffer>, parked::ParkedError>;
}

/// A buffer of weights.
pub trait Buffer: Send + Sync + 'static {
    /// Its lowest address, from which tensors are placed. Need not be readable.
    fn base(&self) -> *mut c_void;

    /// Called when a tensor has been placed (`tensor.data()`).
    ///
    /// # Errors
    /// If the tensor cannot be in this buffer. The error is parked, and the load fails.
    fn init_tensor(&self, tensor: Tensor<'_>) -> Result<(), parked::ParkedError>;

    /// Called when the loader offers bytes `[offset, offset + len)` of the tensor; `source` may be
    /// an unread mapping.
    fn set_tensor(&self, tensor: Tensor<'_>, source: *const c_void, offset: usize, len: usize);

    /// Copies bytes of a tensor to `target`.
    fn get_tensor(&self, tensor: Tensor<'_>, target: *mut c_void, offset: usize, len: usize);

    /// For downcasting by the buffer's owner.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Context of a buffer type, to which `ggml_backend_buffer_type.context` points. Leaked, since ggml
/// keeps buffer types for the life of the process.
struct TypeContext {
    name: CString,
    implementation: Arc<dyn BufferType>,
}

/// Makes a buffer type of `device` that lives as long as the process.
pub(crate) fn leak_type(
    name: &str,
    device: sys::ggml_backend_dev_t,
    implementation: Arc<dyn BufferType>,
) -> BufferTypeHandle {
    let name = CString::new(name).expect("buffer type names have no NUL");
    let context: &'static mut TypeContext = Box::leak(Box::new(TypeContext { name, implementation }));
    let context = (&raw mut *context).cast();
    let raw = match layout() {
        Layout::Three | Layout::Several => {
            let iface = abi::BufferTypeInterface {
                get_name: Some(type_name),
                alloc_buffer: Some(type_alloc),
                alloc_buffer_n: None,
                get_alignment: Some(type_alignment),
                get_max_size: None,
                get_alloc_size: Some(type_alloc_size),
                get_alloc_size_n: None,
                is_host: Some(type_is_host),
            };
            let raw = Box::leak(Box::new(abi::BufferType { iface, device, context }));
            (&raw mut *raw).cast()
        }
        Layout::Two | Layout::Plain => {
            let iface = hosts::BufferTypeInterface2 {
                get_name: Some(type_name),
                alloc_buffer: Some(type_alloc),
                get_alignment: Some(type_alignment),
                get_max_size: None,
                get_alloc_size: Some(type_alloc_size),
                is_host: Some(type_is_host),
            };
            let raw = Box::leak(Box::new(hosts::BufferType2 { iface, device, context }));
            (&raw mut *raw).cast()
        }
    };
    // SAFETY: leaked, so it lives as long as the process.
    unsafe { BufferTypeHandle::from_raw(raw) }
}

/// The Rust buffer of a tensor, if the tensor lies in `buffer_type` and that is one of Terrace's.
pub fn buffer_of<'g>(tensor: Tensor<'g>, buffer_type: BufferTypeHandle) -> Option<&'g dyn Buffer> {
    if tensor.buffer_type() != Some(buffer_type) {
        return None;
    }
    let context = tensor.buffer_context().cast::<Box<dyn Buffer>>();
    // SAFETY: buffers of a type made by `leak_type` have a `Box<dyn Buffer>` as context
    // (`type_alloc`), and the buffer outlives the tensors in it. Buffers without bytes, which ggml
    // makes by itself, have none.
    unsafe { context.as_ref() }.map(|buffer| &**buffer)
}

/// # Safety
/// `buft` was made by `leak_type`.
unsafe fn type_context<'a>(buft: sys::ggml_backend_buffer_type_t) -> &'a TypeContext {
    // SAFETY: `leak_type` made a structure of this layout, and stored a leaked TypeContext.
    unsafe { &*context_of_type(buft).cast::<TypeContext>() }
}

unsafe extern "C" fn type_name(buft: sys::ggml_backend_buffer_type_t) -> *const c_char {
    // SAFETY: ggml calls the functions of a vtable with the object that holds it.
    unsafe { type_context(buft) }.name.as_ptr()
}

unsafe extern "C" fn type_alignment(_buft: sys::ggml_backend_buffer_type_t) -> usize {
    // ggml requires at least TENSOR_ALIGNMENT (32); a cache line suits every kernel.
    64
}

unsafe extern "C" fn type_is_host(buft: sys::ggml_backend_buffer_type_t) -> bool {
    // SAFETY: as in `type_name`.
    let context = unsafe { type_context(buft) };
    parked::guard("BufferType::is_host", false, || context.implementation.is_host())
}

thread_local! {
    /// True if the buffer that this thread has made next is for tensors that its type does not take.
    /// Before ggml has one made, it asks for the sizes of all tensors in it.
    static FOR_OTHERS: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn type_alloc_size(
    buft: sys::ggml_backend_buffer_type_t,
    tensor: *const sys::ggml_tensor,
) -> usize {
    // SAFETY: as in `type_name`; ggml passes an initialised tensor.
    let (context, tensor) = unsafe { (type_context(buft), Tensor::from_raw(tensor.cast_mut())) };
    parked::guard("BufferType::alloc_size", usize::MAX / 2, || {
        let takes = context.implementation.takes(tensor);
        FOR_OTHERS.set(!takes);
        if takes { context.implementation.alloc_size(tensor) } else { tensor.bytes() }
    })
}

unsafe extern "C" fn type_alloc(
    buft: sys::ggml_backend_buffer_type_t,
    size: usize,
) -> sys::ggml_backend_buffer_t {
    // SAFETY: as in `type_name`.
    let context = unsafe { type_context(buft) };
    if FOR_OTHERS.take() {
        // SAFETY: a static buffer type. Its buffers know that they are of it, and ggml asks them.
        return unsafe { sys::ggml_backend_buft_alloc_buffer(sys::ggml_backend_cpu_buffer_type(), size) };
    }
    parked::guard("BufferType::alloc", std::ptr::null_mut(), || match context.implementation.alloc(size) {
        Err(error) => {
            parked::park(error);
            std::ptr::null_mut()
        }
        Ok(buffer) => {
            let context: *mut Box<dyn Buffer> = Box::into_raw(Box::new(buffer));
            // SAFETY: the vtable's functions expect just this context, and `buffer_free` releases
            // it.
            unsafe { buffer_init(buft, context.cast(), size) }
        }
    })
}

/// Makes a buffer with the functions below.
///
/// # Safety
/// `context` is a box of `Box<dyn Buffer>`, which the buffer owns from now on.
unsafe fn buffer_init(
    buft: sys::ggml_backend_buffer_type_t,
    context: *mut c_void,
    size: usize,
) -> sys::ggml_backend_buffer_t {
    match layout() {
        // SAFETY: the caller's contract; the pinned release's table of functions is also this layout's.
        Layout::Two | Layout::Three => unsafe { init_with(BUFFER_INTERFACE, buft, context, size) },
        // SAFETY: the caller's contract.
        Layout::Plain => unsafe { init_with(BUFFER_INTERFACE_PLAIN, buft, context, size) },
        // SAFETY: the caller's contract.
        Layout::Several => unsafe { init_with(BUFFER_INTERFACE_SEVERAL, buft, context, size) },
    }
}

/// # Safety
/// As [`buffer_init`]; `interface` is the table of functions of this process's ggml.
unsafe fn init_with<Interface>(
    interface: Interface,
    buft: sys::ggml_backend_buffer_type_t,
    context: *mut c_void,
    size: usize,
) -> sys::ggml_backend_buffer_t {
    type Init<Interface> = unsafe extern "C" fn(
        sys::ggml_backend_buffer_type_t,
        Interface,
        *mut c_void,
        usize,
    ) -> sys::ggml_backend_buffer_t;
    // SAFETY: ggml's function takes its own table of functions by value, which is this one; the rest is the caller's
    // contract.
    unsafe {
        let init =
            std::mem::transmute::<*const (), Init<Interface>>(abi::ggml_backend_buffer_init as *const ());
        init(buft, interface, context, size)
    }
}

const BUFFER_INTERFACE_PLAIN: hosts::BufferInterfacePlain = hosts::BufferInterfacePlain {
    free_buffer: BUFFER_INTERFACE.free_buffer,
    get_base: BUFFER_INTERFACE.get_base,
    init_tensor: BUFFER_INTERFACE.init_tensor,
    memset_tensor: BUFFER_INTERFACE.memset_tensor,
    set_tensor: BUFFER_INTERFACE.set_tensor,
    get_tensor: BUFFER_INTERFACE.get_tensor,
    cpy_tensor: None,
    clear: BUFFER_INTERFACE.clear,
    reset: None,
};

const BUFFER_INTERFACE_SEVERAL: hosts::BufferInterfaceSeveral = hosts::BufferInterfaceSeveral {
    free_buffer: BUFFER_INTERFACE.free_buffer,
    get_base: BUFFER_INTERFACE.get_base,
    init_tensor: BUFFER_INTERFACE.init_tensor,
    memset_tensor: BUFFER_INTERFACE.memset_tensor,
    set_tensor: BUFFER_INTERFACE.set_tensor,
    get_tensor: BUFFER_INTERFACE.get_tensor,
    set_tensor_2d: None,
    get_tensor_2d: None,
    cpy_tensor: None,
    clear: BUFFER_INTERFACE.clear,
    reset: None,
    set_tensor_n: None,
    get_tensor_n: None,
    cpy_tensor_n: None,
};

const BUFFER_INTERFACE: abi::BufferInterface = abi::BufferInterface {
    free_buffer: Some(buffer_free),
    get_base: Some(buffer_base),
    init_tensor: Some(buffer_init_tensor),
    memset_tensor: Some(buffer_memset),
    set_tensor: Some(buffer_set),
    get_tensor: Some(buffer_get),
    set_tensor_2d: None,
    get_tensor_2d: None,
    cpy_tensor: None,
    clear: Some(buffer_clear),
    reset: None,
};

/// # Safety
/// `buffer` was made by `type_alloc` and is not freed.
unsafe fn buffer_context<'a>(buffer: sys::ggml_backend_buffer_t) -> &'a dyn Buffer {
    // SAFETY: `type_alloc` stored a boxed `Box<dyn Buffer>`.
    unsafe { &**context_of_buffer(buffer).cast::<Box<dyn Buffer>>() }
}

unsafe extern "C" fn buffer_free(buffer: sys::ggml_backend_buffer_t) {
    // SAFETY: ggml frees a buffer once; the context is the box that `type_alloc` made.
    let context = unsafe { Box::from_raw(context_of_buffer(buffer).cast::<Box<dyn Buffer>>()) };
    parked::guard("Buffer::drop", (), || drop(context));
}

unsafe extern "C" fn buffer_base(buffer: sys::ggml_backend_buffer_t) -> *mut c_void {
    // SAFETY: ggml calls the functions of a vtable with the object that holds it.
    let context = unsafe { buffer_context(buffer) };
    parked::guard("Buffer::base", std::ptr::null_mut(), || context.base())
}

unsafe extern "C" fn buffer_init_tensor(
    buffer: sys::ggml_backend_buffer_t,
    tensor: *mut sys::ggml_tensor,
) -> sys::ggml_status {
    // SAFETY: as in `buffer_base`; ggml passes an initialised tensor.
    let (context, tensor) = unsafe { (buffer_context(buffer), Tensor::from_raw(tensor)) };
    parked::guard("Buffer::init_tensor", sys::GGML_STATUS_FAILED, || match context.init_tensor(tensor) {
        Ok(()) => sys::GGML_STATUS_SUCCESS,
        Err(error) => {
            parked::park(error);
            sys::GGML_STATUS_FAILED
        }
    })
}

unsafe extern "C" fn buffer_set(
    buffer: sys::ggml_backend_buffer_t,
    tensor: *mut sys::ggml_tensor,
    source: *const c_void,
    offset: usize,
    len: usize,
) {
    // SAFETY: as in `buffer_init_tensor`.
    let (context, tensor) = unsafe { (buffer_context(buffer), Tensor::from_raw(tensor)) };
    parked::guard("Buffer::set_tensor", (), || context.set_tensor(tensor, source, offset, len));
}

unsafe extern "C" fn buffer_get(
    buffer: sys::ggml_backend_buffer_t,
    tensor: *const sys::ggml_tensor,
    target: *mut c_void,
    offset: usize,
    len: usize,
) {
    // SAFETY: as in `buffer_init_tensor`.
    let (context, tensor) = unsafe { (buffer_context(buffer), Tensor::from_raw(tensor.cast_mut())) };
    parked::guard("Buffer::get_tensor", (), || context.get_tensor(tensor, target, offset, len));
}

unsafe extern "C" fn buffer_memset(
    _buffer: sys::ggml_backend_buffer_t,
    _tensor: *mut sys::ggml_tensor,
    _value: u8,
    _offset: usize,
    _len: usize,
) {
    // Weights come from files; ggml clears only computed tensors, which are never in these buffers.
}

unsafe extern "C" fn buffer_clear(_buffer: sys::ggml_backend_buffer_t, _value: u8) {
    // As in `buffer_memset`.
}
