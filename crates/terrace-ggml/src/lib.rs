//! Speaks ggml and llama.cpp safely.
//!
//! Three floors: the raw ABI ([`abi`](self), private), thin results, and owned handles. This is the only crate that
//! names a `ggml_*`, `gguf_*` or `llama_*` symbol. Traits become C vtables through small trampolines; no panic
//! crosses C: what happens inside a callback is parked ([`parked`]) for the Rust caller on the other side.

mod abi;
pub mod blocked;
pub mod buffer;
pub mod cpu;
pub mod device;
pub mod devices;
pub mod expert_device;
mod fatal;
pub mod gguf;
pub mod gguf_write;
#[doc(hidden)]
pub mod graph_for_tests;
pub mod imatrix;
pub mod llama;
pub mod log;
pub mod memory;
pub mod parked;
pub mod quantize;
#[doc(hidden)]
pub mod quantize_for_tests;
pub mod rates;
pub mod remote;
pub mod routing_trace;
pub mod row_op;
pub mod rpc;
mod tensor;

/// The hand-declared vtables, for the test that compares them with the pinned header.
#[doc(hidden)]
pub mod abi_for_tests {
    pub use crate::abi::*;
}

pub use tensor::{CustomFn, DataType, Graph, Op, SavedOp, Tensor};
