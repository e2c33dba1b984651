//! Speaks ggml and llama.cpp safely.
//!
//! Three floors: the raw ABI (`raw`, private), thin results, and owned handles. This is the only crate that
//! names a `ggml_*`, `gguf_*` or `llama_*` symbol. Traits become C vtables through small trampolines; no panic
//! crosses C: what happens inside a callback is parked ([`backend::parked`]) for the Rust caller on the other side.

pub mod backend;
pub mod cpu;
pub mod devices;
pub mod gguf;
pub mod llama;
pub mod log;
pub mod memory;
pub mod quantize;
mod raw;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;

pub use tensor::{CustomFn, DataType, Graph, Op, SavedOp, Tensor};
