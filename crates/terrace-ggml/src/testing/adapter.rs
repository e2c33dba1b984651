//! LoRA adapters, of which stock llama.cpp takes care.

use crate::llama::{Context, Model};
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Loads the adapter at `path`, and has the context compute with it. The model frees it.
///
/// # Panics
/// If llama.cpp refuses it.
pub fn apply(model: &Model, context: &mut Context, path: &Path) {
    let c_path = CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL");
    // SAFETY: a live model, and the context of it; llama.cpp copies the lists of one.
    unsafe {
        let mut adapter = sys::llama_adapter_lora_init(model.as_ptr(), c_path.as_ptr());
        assert!(!adapter.is_null(), "llama.cpp refuses {path:?}");
        let mut scale = 1.0;
        let status = sys::llama_set_adapters_lora(context.as_ptr(), &raw mut adapter, 1, &raw mut scale);
        assert_eq!(status, 0, "the adapter cannot be applied");
    }
}
