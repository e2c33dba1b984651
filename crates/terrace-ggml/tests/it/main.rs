//! Tests of the FFI floor against ggml itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod abi;
mod gguf;
mod imatrix;
mod outputs;
