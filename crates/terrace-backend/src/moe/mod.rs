//! MoE blocks on managed experts: a whole block as one node, and product by product where a block is not recognised.

pub mod activations;
pub mod fused;
pub mod single;
