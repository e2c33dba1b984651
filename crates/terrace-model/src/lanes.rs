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

/// Returns the memory for the activations that go to a lane and come back, where each token uses
/// `used` experts in each of these layers.
pub fn lane_activations(model: &ModelFile, layers: impl Iterator<Item = LayerId>, used: u32) -> ByteSize {
    let of = |layer: LayerId| -> u64 {
        let experts = model.tensors.iter().filter(|tensor| tensor.layer() == Some(layer));
        let experts = experts.filter(|tensor| tensor.shape.dims() >= 3);
        experts.map(|tensor| tensor.shape.0[0] + ROWS * tensor.shape.0[1]).sum()
    };
    let floats = layers.map(of).max().unwrap_or(0);
    ByteSize(floats * size_of::<f32>() as u64 * u64::from(used) * SWEEP_TOKENS + PADDING)
}
