//! For tests and test kits only (feature `testing`): graphs made by hand, stock llama.cpp as a
//! reference, what it knows of architectures, and libraries that look like ggml's backends.

pub mod architectures;
pub mod graph;
pub mod library;
pub mod quantize;
pub mod routing;

/// The hand-declared vtables, for the test that compares them with the pinned header.
pub mod abi {
    pub use crate::raw::abi::*;
}
