//! For tests and test kits alone (feature `testing`): graphs by hand, and what stock llama.cpp does by itself.

pub mod graph;
pub mod quantize;
pub mod routing;

/// The hand-declared vtables, for the test that compares them with the pinned header.
pub mod abi {
    pub use crate::raw::abi::*;
}
