//! Safe interfaces to ggml and llama.cpp: the only crate that names a `ggml_*`, `gguf_*` or
//! `llama_*` symbol.
//!
//! From the bottom up: [`pin`] (all that follows llama.cpp's release); `raw` and `handles`; `tensor`, [`backend`]
//! (Terrace's own backends as C sees them), [`cpu`]; then [`devices`], [`gguf`], [`quantize`],
//! [`llama`] and [`vision`]. No panic unwinds into C: see [`backend::parked`]. No C++ exception unwinds into Rust:
//! see `cxx`.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod backend;
pub mod common;
pub mod cpu;
mod cxx;
pub mod devices;
pub mod gguf;
mod handles;
pub mod llama;
pub mod log;
pub mod memory;
pub mod pin;
pub mod quantize;
mod raw;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
pub mod vision;

pub use cxx::{CxxError, Excess};
pub use tensor::{
    Along, CustomFn, DataType, Divided, Division, GluOp, Graph, Op, Place, SavedOp, Tensor, readable_mask,
};

#[cfg(test)]
use terrace_test_env as _;
