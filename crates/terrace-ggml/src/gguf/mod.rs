//! Reads what GGUF files say about their tensors, through ggml's own reader.
//!
//! Nothing here trusts a file: a bounded walk (`scan`) refuses headers that would make ggml's reader allocate
//! what a few damaged bytes claim, ggml's reader then parses and checks, and what it lets through is checked
//! against the files' lengths and, for split models, between the shards. No tensor data is read.

mod context;
mod error;
mod file;
mod read;
mod scan;
mod split;
mod types;
pub mod write;

pub use error::GgufError;
pub use read::{header_len, read, read_one, tensor_type};
