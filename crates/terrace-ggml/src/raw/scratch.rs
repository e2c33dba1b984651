//! A ggml context for Terrace's own tensors and graphs.

use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// A ggml context for tensors and graphs, without the tensors' data.
pub struct ScratchContext(NonNull<sys::ggml_context>);

impl ScratchContext {
    /// Makes a context with room for `tensors` tensors and a graph of as many nodes.
    pub fn new(tensors: usize) -> Self {
        // SAFETY: plain arithmetic in ggml; the context owns what it allocates.
        let context = unsafe {
            let graph = sys::ggml_graph_overhead_custom(tensors.max(16), false);
            sys::ggml_init(sys::ggml_init_params {
                mem_size: tensors * sys::ggml_tensor_overhead() + graph + (16 << 10),
                mem_buffer: std::ptr::null_mut(),
                no_alloc: true,
            })
        };
        Self(NonNull::new(context).expect("memory for some hundred tensors"))
    }

    /// ggml's handle, valid as long as `self`.
    pub fn raw(&self) -> *mut sys::ggml_context {
        self.0.as_ptr()
    }
}

impl Drop for ScratchContext {
    fn drop(&mut self) {
        // SAFETY: owned; graphs in it are gone before it.
        unsafe { sys::ggml_free(self.0.as_ptr()) };
    }
}
