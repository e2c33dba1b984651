//! A device that computes chosen experts of MoE blocks for us, beside whatever llama.cpp has there.
//!
//! An [`ExpertDevice`] holds *slots* of layers: for each matrix of a layer one tensor `[inner, rows, slots]`, into which single
//! experts are put. It computes pairs of an activation row and a slot by the layer's [`Recipe`]: what the model's graph does
//! from the first products of a block to the last one. Graphs are made once for each layer and number of pairs.

mod device;
mod error;
mod graph;
mod recipe;
mod slots;

pub use device::{ExpertDevice, LayerKey};
pub use error::ExpertDeviceError;
pub use graph::Pairs;
pub use recipe::{Part, Recipe, Source, Step};
pub use slots::SlotShape;
