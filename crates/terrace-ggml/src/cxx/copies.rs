//! Copies of tensors' bytes that wait until they are done. Drivers of devices throw what their
//! libraries throw: a device that is lost is an error.

use super::{CxxError, calls, guard};
use llama_cpp_sys_2 as sys;

/// Copies `values` into a tensor, from byte `offset` of it on.
///
/// # Errors
/// What the device's driver threw. What the tensor holds then is unknown.
///
/// # Safety
/// A live tensor with memory, which has as many bytes from `offset` on.
pub unsafe fn put<T: Copy>(
    tensor: *mut sys::ggml_tensor,
    offset: usize,
    values: &[T],
) -> Result<(), CxxError> {
    // SAFETY: the caller's contract.
    guard(|| unsafe {
        calls::ggml_backend_tensor_set(tensor, values.as_ptr().cast(), offset, size_of_val(values));
    })
}

/// Copies the bytes of a tensor, from byte `offset` of it on, over `values`.
///
/// # Errors
/// What the device's driver threw. What `values` holds then is unknown.
///
/// # Safety
/// A live tensor with memory, which has as many bytes from `offset` on; they are values of this type.
pub unsafe fn get<T: Copy>(
    tensor: *const sys::ggml_tensor,
    offset: usize,
    values: &mut [T],
) -> Result<(), CxxError> {
    let size = size_of_val(values);
    // SAFETY: the caller's contract.
    guard(|| unsafe {
        calls::ggml_backend_tensor_get(tensor, values.as_mut_ptr().cast(), offset, size);
    })
}
