//! What copies of experts take of a device beside their bytes.

use crate::{ByteSize, LayerId, ModelFile};

/// Token rows in one ids tensor up to which a graph is decoding: a token, and a few of them verified together, which touch few
/// experts. More rows touch nearly all experts of each layer, once.
pub const SWEEP_TOKENS: u64 = 8;

/// Bytes of activations beside what rows take: alignment of each tensor.
const PADDING: u64 = 64 << 10;
/// Rows of results of an expert's matrices that activations have room for, the operations' between them included.
const ROWS: u64 = 3;

/// Memory for what goes to a lane and comes back, for blocks of these layers of which each token uses `used` experts.
pub fn lane_activations(model: &ModelFile, layers: impl Iterator<Item = LayerId>, used: u32) -> ByteSize {
    let of = |layer: LayerId| -> u64 {
        let experts = model.tensors.iter().filter(|tensor| tensor.layer() == Some(layer));
        let experts = experts.filter(|tensor| tensor.shape.dims() >= 3);
        experts.map(|tensor| tensor.shape.0[0] + ROWS * tensor.shape.0[1]).sum()
    };
    let floats = layers.map(of).max().unwrap_or(0);
    ByteSize(floats * size_of::<f32>() as u64 * u64::from(used) * SWEEP_TOKENS + PADDING)
}
