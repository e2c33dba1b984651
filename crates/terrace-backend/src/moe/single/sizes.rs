//! Scratch memory of nodes of single expert products.

use crate::moe::activations;
use crate::tiles::expert_tile;
use terrace_ggml::Tensor;
use terrace_ggml::cpu::Kernels;
use terrace_ggml::cpu::blocked::BlockedExpert;

/// Maximum scratch that expert nodes need, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScratchSizes {
    /// For converted activations.
    pub activations: usize,
    /// For ggml's blocked kernel.
    pub blocked: usize,
    /// For activations that are quantised for tiles.
    pub tiled: usize,
}

impl ScratchSizes {
    /// Makes room for a node.
    pub fn add(&mut self, node: Tensor<'_>, kernels: &Kernels, threads: usize, fast: bool) {
        self.activations = self.activations.max(activations::activation_bytes(node, kernels));
        self.blocked = self.blocked.max(BlockedExpert::scratch_bytes(node, threads));
        let inner = node.src(0).map_or(0, |weights| weights.ne()[0].unsigned_abs() as usize);
        let rows = node.src(1).map_or(0, |input| (input.ne()[1] * input.ne()[2]).unsigned_abs() as usize);
        if let Some(tile) = node.src(0).and_then(|weights| expert_tile(weights.ty(), inner)).filter(|_| fast)
        {
            self.tiled = self.tiled.max(rows * tile.activation_bytes());
        }
    }
}
