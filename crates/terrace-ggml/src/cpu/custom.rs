//! Custom nodes, which run a Rust function.

use crate::tensor::Tensor;
use llama_cpp_sys_2 as sys;

/// The raw tensor, for signatures of custom functions.
pub type RawTensor = sys::ggml_tensor;

/// The node that a custom function gets.
///
/// # Safety
/// Call it only inside a [`CustomFn`](crate::CustomFn), with that function's first argument.
pub unsafe fn custom_node<'g>(raw: *mut RawTensor) -> Tensor<'g> {
    // SAFETY: ggml passes the live node to the custom function.
    unsafe { Tensor::from_raw(raw) }
}
