//! Nodes that run a function of ours.

use crate::tensor::Tensor;
use llama_cpp_sys_2 as sys;

/// Re-exported for signatures of custom nodes.
pub type RawTensor = sys::ggml_tensor;

/// A node as a custom function gets it.
///
/// # Safety
/// To be called inside a [`CustomFn`](crate::CustomFn) with its first argument only.
pub unsafe fn custom_node<'g>(raw: *mut RawTensor) -> Tensor<'g> {
    // SAFETY: ggml passes the live node to the custom function.
    unsafe { Tensor::from_raw(raw) }
}
