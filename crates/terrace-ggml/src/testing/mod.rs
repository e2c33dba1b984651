//! For tests and test kits only (feature `testing`): graphs made by hand, stock llama.cpp as a
//! reference and its parameters, what it knows of architectures, what its scheduler does with a
//! device that stands in for a GPU, and libraries that look like ggml's backends.

pub mod adapter;
pub mod architectures;
pub mod graph;
pub mod library;
pub mod params;
pub mod plugin;
pub mod quantize;
pub mod routing;
pub mod splits;
pub mod stand_in;
pub mod vision;

/// The hand-declared vtables, for the test that compares them with the pinned header.
pub mod abi {
    pub use crate::pin::abi::*;
    pub use crate::pin::hosts::*;
}
