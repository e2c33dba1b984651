//! For tests and test kits only (feature `testing`): graphs made by hand, stock llama.cpp as a
//! reference, and what it knows of architectures.

pub mod architectures;
pub mod graph;
pub mod quantize;
pub mod routing;

/// The hand-declared vtables, for the test that compares them with the pinned header.
pub mod abi {
    pub use crate::raw::abi::*;
}
