//! A device that computes chosen experts of MoE blocks, beside whatever llama.cpp keeps there.
//!
//! An [`ExpertDevice`] holds *slots* of layers: one tensor `[inner, rows, slots]` for each matrix
//! of a layer, into which single experts are copied. It computes pairs of an activation row and a
//! slot by the layer's [`Recipe`], which describes what the model's graph does from the first
//! products of a block to the last one. Graphs are made once for each layer and number of pairs of a
//! token; the many pairs of a prompt are computed in chunks.

mod chunks;
mod device;
mod error;
mod graph;
mod recipe;
mod slots;

pub use device::{ExpertDevice, Held, LayerKey};
pub use error::ExpertDeviceError;
pub use graph::Pairs;
pub use recipe::{Recipe, RowSpan, Source, Step};
pub use slots::SlotShape;
pub(super) use slots::allocate;
