//! For tests and test kits only (feature `testing`): graphs made by hand, and stock llama.cpp as a
//! reference.

pub mod graph;
pub mod quantize;
pub mod routing;

/// The hand-declared vtables, for the test that compares them with the pinned header.
pub mod abi {
    pub use crate::raw::abi::*;
}
