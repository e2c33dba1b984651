//! Computes MoE blocks on managed experts: a whole block as one node, or product by product if a
//! block is not recognised.

pub mod activations;
pub mod fused;
pub mod single;
mod waves;
