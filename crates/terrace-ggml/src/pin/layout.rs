//! Which layout the structures of this process's ggml have: that of the linked release, or of a host
//! that loaded Terrace as a plug-in.

use super::{abi, hosts};
use llama_cpp_sys_2 as sys;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A layout of ggml's backend structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    /// API version 3: buffer types also allocate lists of tensors.
    Three,
    /// API version 2, as of ggml 0.9.11 to 0.25: buffers and backends copy in two dimensions.
    Two,
    /// API version 2 before that.
    Plain,
}

impl Layout {
    /// The version of ggml's backend interface that has this layout.
    pub const fn api_version(self) -> c_int {
        match self {
            Self::Plain | Self::Two => 2,
            Self::Three => abi::API_VERSION,
        }
    }

    /// Returns true if buffers and backends copy in two dimensions.
    pub const fn copies_2d(self) -> bool {
        matches!(self, Self::Two | Self::Three)
    }
}

static LAYOUT: AtomicU8 = AtomicU8::new(Layout::Three as u8);
static WITHOUT_NUMBERS: AtomicBool = AtomicBool::new(false);

/// The layout of this process's ggml.
pub fn layout() -> Layout {
    const OLDER: [Layout; 2] = [Layout::Two, Layout::Plain];
    let known = LAYOUT.load(Ordering::Relaxed);
    OLDER.into_iter().find(|&layout| layout as u8 == known).unwrap_or(Layout::Three)
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
        match layout().copies_2d() {
            false => (*buffer.cast::<hosts::BufferPlain>()).buft,
            true => (*buffer.cast::<abi::Buffer>()).buft,
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
        match layout().copies_2d() {
            false => (*buffer.cast::<hosts::BufferPlain>()).context,
            true => (*buffer.cast::<abi::Buffer>()).context,
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
        match layout().copies_2d() {
            false => (*backend.cast::<hosts::BackendPlain>()).device,
            true => (*backend.cast::<abi::Backend>()).device,
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
        match layout().copies_2d() {
            false => (*backend.cast::<hosts::BackendPlain>()).context,
            true => (*backend.cast::<abi::Backend>()).context,
        }
    }
}
