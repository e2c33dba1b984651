//! Functions of ggml's RPC backend, looked up by name.

use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Looks up a function of ggml's RPC backend.
pub fn function(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: C strings; a registry lives as long as the process.
    unsafe {
        let registry = sys::ggml_backend_reg_by_name(c"RPC".as_ptr());
        if registry.is_null() {
            return None;
        }
        NonNull::new(sys::ggml_backend_reg_get_proc_address(registry, name.as_ptr()))
    }
}
