//! ggml's tensor types as plain data.

use llama_cpp_sys_2 as sys;
use std::ffi::CStr;
use terrace_model::TensorType;

/// Describes a tensor type by its number; `None` for numbers that ggml does not know or no longer uses.
pub fn describe(id: u32) -> Option<TensorType> {
    // Safe to ask only below the count: ggml indexes a table of that many rows.
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
