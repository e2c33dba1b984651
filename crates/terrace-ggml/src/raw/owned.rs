//! ggml handles that are freed with their owners.

use crate::cxx::{calls, guard};
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// A buffer. Must be dropped after the last use of the tensors in it.
pub struct OwnedBuffer(pub NonNull<sys::ggml_backend_buffer>);

impl Drop for OwnedBuffer {
    fn drop(&mut self) {
        // SAFETY: owned; the owner of tensors in it keeps it until they are no longer used.
        unsafe { sys::ggml_backend_buffer_free(self.0.as_ptr()) };
    }
}

/// A backend instance, which computes graphs on a device.
pub struct OwnedBackend(pub NonNull<sys::ggml_backend>);

impl Drop for OwnedBackend {
    fn drop(&mut self) {
        // If the device fails while it is waited for, its memory is lost with it.
        // SAFETY: owned, and nothing runs on it.
        let _ = guard(|| unsafe { calls::ggml_backend_free(self.0.as_ptr()) });
    }
}
