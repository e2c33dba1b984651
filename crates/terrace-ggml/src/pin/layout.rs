//! Which layout the structures of this process's ggml have: that of the linked release, or of a host
//! that loaded Terrace as a plug-in. One table for both.

use super::{abi, hosts};
use llama_cpp_sys_2 as sys;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Functions and fields of ggml by which releases of one version of its interface differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions {
    /// Buffer types allocate lists of tensors: `ggml_backend_buft_alloc_buffer_n`.
    pub lists_of_tensors: bool,
    /// Buffers and backends copy in two dimensions: `ggml_backend_tensor_set_2d`.
    pub copies_2d: bool,
    /// Buffers copy several tensors: `ggml_backend_tensor_set_n`.
    pub copies_n: bool,
}

/// The interface of a ggml: all that tells the layout of its structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// `GGML_BACKEND_API_VERSION`.
    pub api: c_int,
    /// What it has.
    pub has: Functions,
}

/// A layout of ggml's backend structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    /// API version 3 as of ggml 0.28: buffers also copy several tensors.
    Several,
    /// API version 3 before that: buffer types also allocate lists of tensors.
    Three,
    /// API version 2, as of ggml 0.9.11 to 0.25: buffers and backends copy in two dimensions.
    Two,
    /// API version 2 before that.
    Plain,
}

// `LINKED_INTERFACE` and `LINKED_PROTOCOL`, as the headers of the linked release have it (build/probes.rs).
include!(concat!(env!("OUT_DIR"), "/linked.rs"));

/// The layout of the release that is linked.
pub const LINKED: Layout = match Layout::of(LINKED_INTERFACE) {
    Some(layout) => layout,
    None => {
        panic!("this llama.cpp's ggml has structures that pin/layout.rs does not know: cargo xtask pin TREE")
    }
};

impl Layout {
    const ALL: [Self; 4] = [Self::Several, Self::Three, Self::Two, Self::Plain];

    /// The layout of a ggml with this interface; `None` if none is known.
    pub const fn of(interface: Interface) -> Option<Self> {
        let Functions { lists_of_tensors, copies_2d, copies_n } = interface.has;
        match (interface.api, copies_2d, lists_of_tensors, copies_n) {
            (2, false, false, false) => Some(Self::Plain),
            (2, true, false, false) => Some(Self::Two),
            (3, true, true, false) => Some(Self::Three),
            (3, true, true, true) => Some(Self::Several),
            _ => None,
        }
    }

    /// The version of ggml's backend interface that has this layout.
    pub const fn api_version(self) -> c_int {
        match self {
            Self::Plain | Self::Two => 2,
            Self::Three | Self::Several => 3,
        }
    }
}

static LAYOUT: AtomicU8 = AtomicU8::new(LINKED as u8);
static WITHOUT_NUMBERS: AtomicBool = AtomicBool::new(false);

/// The layout of this process's ggml.
pub fn layout() -> Layout {
    let known = LAYOUT.load(Ordering::Relaxed);
    Layout::ALL.into_iter().find(|&layout| layout as u8 == known).unwrap_or(LINKED)
}

/// Returns true if graphs have numbers ([`abi::Graph::uid`]).
pub fn graphs_have_numbers() -> bool {
    !WITHOUT_NUMBERS.load(Ordering::Relaxed)
}

/// Sets the layout, before anything is made that ggml knows.
pub fn adopt(layout: Layout, graphs_have_numbers: bool) {
    LAYOUT.store(layout as u8, Ordering::Relaxed);
    WITHOUT_NUMBERS.store(!graphs_have_numbers, Ordering::Relaxed);
}

/// The buffer type of a buffer.
///
/// # Safety
/// `buffer` is a live buffer of this process's ggml.
pub unsafe fn type_of_buffer(buffer: sys::ggml_backend_buffer_t) -> sys::ggml_backend_buffer_type_t {
    // SAFETY: the caller's contract.
    unsafe {
        match layout() {
            Layout::Plain => (*buffer.cast::<hosts::BufferPlain>()).buft,
            Layout::Two | Layout::Three => (*buffer.cast::<abi::Buffer>()).buft,
            Layout::Several => (*buffer.cast::<hosts::BufferSeveral>()).buft,
        }
    }
}

/// The context of a buffer.
///
/// # Safety
/// As [`type_of_buffer`].
pub unsafe fn context_of_buffer(buffer: sys::ggml_backend_buffer_t) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        match layout() {
            Layout::Plain => (*buffer.cast::<hosts::BufferPlain>()).context,
            Layout::Two | Layout::Three => (*buffer.cast::<abi::Buffer>()).context,
            Layout::Several => (*buffer.cast::<hosts::BufferSeveral>()).context,
        }
    }
}

/// The device of a backend.
///
/// # Safety
/// `backend` is a live backend of this process's ggml.
pub unsafe fn device_of_backend(backend: sys::ggml_backend_t) -> sys::ggml_backend_dev_t {
    // SAFETY: the caller's contract.
    unsafe {
        match layout() {
            Layout::Plain => (*backend.cast::<hosts::BackendPlain>()).device,
            _ => (*backend.cast::<abi::Backend>()).device,
        }
    }
}

/// The context of a backend.
///
/// # Safety
/// As [`device_of_backend`].
pub unsafe fn context_of_backend(backend: sys::ggml_backend_t) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        match layout() {
            Layout::Plain => (*backend.cast::<hosts::BackendPlain>()).context,
            _ => (*backend.cast::<abi::Backend>()).context,
        }
    }
}

/// The context of a buffer type.
///
/// # Safety
/// `buffers` is a live buffer type of this process's ggml.
pub unsafe fn context_of_type(buffers: sys::ggml_backend_buffer_type_t) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        match layout() {
            Layout::Plain | Layout::Two => (*buffers.cast::<hosts::BufferType2>()).context,
            Layout::Three | Layout::Several => (*buffers.cast::<abi::BufferType>()).context,
        }
    }
}

/// A function that frees a buffer.
pub type FreeBuffer = unsafe extern "C" fn(sys::ggml_backend_buffer_t);

/// A function that allocates a buffer of a type.
pub type AllocBuffer =
    unsafe extern "C" fn(sys::ggml_backend_buffer_type_t, usize) -> sys::ggml_backend_buffer_t;

/// Has `free` free a buffer. Returns the function that did.
///
/// # Safety
/// `buffer` is a live buffer of this process's ggml that no other thread knows, and `free` may be called with it.
pub unsafe fn replace_free(buffer: sys::ggml_backend_buffer_t, free: FreeBuffer) -> Option<FreeBuffer> {
    // SAFETY: the caller's contract.
    unsafe {
        match layout() {
            Layout::Plain => (*buffer.cast::<hosts::BufferPlain>()).iface.free_buffer.replace(free),
            Layout::Two | Layout::Three => (*buffer.cast::<abi::Buffer>()).iface.free_buffer.replace(free),
            Layout::Several => (*buffer.cast::<hosts::BufferSeveral>()).iface.free_buffer.replace(free),
        }
    }
}

/// Makes a copy of a buffer type which is of another device and allocates by `alloc`. It lives as long as the process.
/// Returns the function that the original allocates by as well.
///
/// # Safety
/// `buffers` is a live buffer type of this process's ggml. Its functions can be called with the copy.
pub unsafe fn copy_of_type(
    buffers: sys::ggml_backend_buffer_type_t,
    device: sys::ggml_backend_dev_t,
    alloc: AllocBuffer,
) -> (sys::ggml_backend_buffer_type_t, Option<AllocBuffer>) {
    // SAFETY: the caller's contract.
    unsafe {
        match layout() {
            Layout::Plain | Layout::Two => {
                let &hosts::BufferType2 { iface, context, .. } = &*buffers.cast();
                let own = hosts::BufferTypeInterface2 { alloc_buffer: Some(alloc), ..iface };
                let copy = Box::leak(Box::new(hosts::BufferType2 { iface: own, device, context }));
                ((&raw mut *copy).cast(), iface.alloc_buffer)
            }
            Layout::Three | Layout::Several => {
                let &abi::BufferType { iface, context, .. } = &*buffers.cast();
                let own = abi::BufferTypeInterface { alloc_buffer: Some(alloc), ..iface };
                let copy = Box::leak(Box::new(abi::BufferType { iface: own, device, context }));
                ((&raw mut *copy).cast(), iface.alloc_buffer)
            }
        }
    }
}
