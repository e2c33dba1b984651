//! ggml's tensor types as plain data.

use llama_cpp_sys_2 as sys;
use std::ffi::CStr;
use terrace_model::TensorType;

/// Describes the tensor type with number `id`; `None` if ggml does not know it or no longer uses
/// it.
pub fn describe(id: u32) -> Option<TensorType> {
    // ggml indexes a table of that many rows without a check.
    if id >= sys::GGML_TYPE_COUNT {
        return None;
    }
    // SAFETY: `id` is below GGML_TYPE_COUNT, and the functions read constant tables.
    let (elements, bytes, name) =
        unsafe { (sys::ggml_blck_size(id), sys::ggml_type_size(id), sys::ggml_type_name(id)) };
    let block_elements = u32::try_from(elements).ok().filter(|&n| n > 0)?;
    let block_bytes = u32::try_from(bytes).ok().filter(|&n| n > 0)?;
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, and ggml's type names are string literals.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Some(TensorType { id, name, block_elements, block_bytes })
}
