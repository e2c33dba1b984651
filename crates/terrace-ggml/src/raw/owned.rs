//! ggml's handles that are freed with their owners.

use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// A buffer. Dropped after the last use of the tensors in it.
pub struct OwnedBuffer(pub NonNull<sys::ggml_backend_buffer>);

impl Drop for OwnedBuffer {
    fn drop(&mut self) {
        // SAFETY: owned; the owner of tensors in it keeps it until they are not used any more.
        unsafe { sys::ggml_backend_buffer_free(self.0.as_ptr()) };
    }
}

/// A stream of computation.
pub struct OwnedBackend(pub NonNull<sys::ggml_backend>);

impl Drop for OwnedBackend {
    fn drop(&mut self) {
        // SAFETY: owned, nothing runs on it.
        unsafe { sys::ggml_backend_free(self.0.as_ptr()) };
    }
}
