//! Reads the headers of GGUF files with ggml's own reader.
//!
//! No file is trusted. A bounded walk (`scan`) refuses headers with which a few damaged bytes would
//! make ggml's reader allocate huge blocks. ggml's reader then parses and checks the header. Its
//! result is checked against the files' lengths and, for split models, across the shards. No tensor
//! data is read.

mod context;
mod error;
mod file;
mod read;
mod scan;
mod split;
mod types;
pub mod write;

pub use error::GgufError;
pub(crate) use file::open as open_regular;
pub use read::{check_numbers, header_len, read, read_one, repeated_token, tensor_type};
