//! Memory that copies of experts take on a device in addition to their bytes.

use crate::{ByteSize, LayerId, ModelFile};

/// The most token rows in one ids tensor with which a graph counts as decoding: one token, or a few
/// that are verified together, use few experts. More rows use nearly all experts of each layer,
/// once.
pub const SWEEP_TOKENS: u64 = 8;

/// Bytes of activations in addition to their rows: the alignment of each tensor.
const PADDING: u64 = 64 << 10;
/// Result rows per expert matrix that activations have room for, including those of the operations
/// between the matrices.
const ROWS: u64 = 3;

/// Fewest pairs of token and expert that activations have room for. An expert with more is computed
/// in equal parts, which then have at least half as many pairs: enough for the kernels that ggml's
/// CPU backend uses for all of them together.
const LEAST_PAIRS: u64 = 16;
/// Pairs of a prompt that are computed together where there is room for them.
const PREFILL_PAIRS: u64 = 512;
/// Share of the copies' memory that the activations of a prompt take at most.
const PREFILL_SHARE: u64 = 16;

/// Returns the memory for the activations that go to a lane and come back, where each token uses
/// `used` experts in each of these layers, and copies take `copies` bytes: enough for decoding, and
/// for many pairs of a prompt if that is little beside the copies.
pub fn lane_activations(
    model: &ModelFile,
    layers: impl Iterator<Item = LayerId>,
    used: u32,
    copies: ByteSize,
) -> ByteSize {
    let of = |layer: LayerId| -> u64 {
        let experts = model.tensors.iter().filter(|tensor| tensor.layer() == Some(layer));
        let experts = experts.filter(|tensor| tensor.shape.dims() >= 3);
        experts.map(|tensor| tensor.shape.0[0] + ROWS * tensor.shape.0[1]).sum()
    };
    let floats = layers.map(of).max().unwrap_or(0);
    let pair = floats * size_of::<f32>() as u64;
    let least = pair * (u64::from(used) * SWEEP_TOKENS).max(LEAST_PAIRS);
    ByteSize(least.max((pair * PREFILL_PAIRS).min(copies.bytes() / PREFILL_SHARE)) + PADDING)
}
