//! Speaks ggml and llama.cpp safely: raw ABI, thin results, owned handles.

pub mod gguf;
pub mod gguf_write;
pub mod log;
pub mod quantize;
pub mod random_model;
