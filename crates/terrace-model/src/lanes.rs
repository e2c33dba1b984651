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

/// Bytes of padding of an expert's matrices on a device, each.
const MATRIX_PADDING: u64 = 4 << 10;
/// Matrices of an expert at most.
const MATRICES: u64 = 3;
/// Share of the copies' memory that both groups of transit slots together take at most.
const TRANSIT_SHARE: u64 = 8;
/// Bytes that a group takes at most if it holds several experts.
const TRANSIT_MOST: u64 = 64 << 20;

/// Returns the fewest bytes of copies of which a part is given to transit slots, if the largest expert
/// takes `expert` bytes: an eighth holds two experts.
pub fn least_copies_beside_transit(expert: ByteSize) -> ByteSize {
    ByteSize(2 * TRANSIT_SHARE * in_transit(expert))
}

/// Bytes of an expert in a transit slot.
fn in_transit(expert: ByteSize) -> u64 {
    expert.bytes() + MATRICES * MATRIX_PADDING
}

/// Returns the memory of one of the two groups of transit slots, through which experts without a copy
/// pass. The largest expert takes `expert` bytes, and copies take `copies`. Zero if they
/// take less than [`least_copies_beside_transit`]: copies keep most of the memory.
pub fn lane_transit(expert: ByteSize, copies: ByteSize) -> ByteSize {
    let one = in_transit(expert);
    let most = (copies.bytes() / TRANSIT_SHARE / 2).min(TRANSIT_MOST.max(one));
    ByteSize(most / one * one)
}

/// Share of a device's memory that is left beside everything else, which a lane without copies takes at
/// most.
const ALONE_SHARE: u64 = 2;
/// Share of its memory that its activations take at most.
const ALONE_ACTIVATIONS: u64 = 4;

/// Memory of a lane that holds no copies, only transit slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransitAlone {
    /// Bytes of one of the two groups of slots; zero if there is no room for one expert in each.
    pub group: ByteSize,
    pub activations: ByteSize,
}

impl TransitAlone {
    /// Divides the memory of a lane on a device that has `left` bytes beside everything else: half of
    /// them at most, and no more than [`lane_transit`] gives any lane. The layers' largest expert takes
    /// `expert` bytes, and each token uses `used` experts.
    pub fn within(
        model: &ModelFile,
        layers: impl Iterator<Item = LayerId>,
        used: u32,
        expert: ByteSize,
        left: ByteSize,
    ) -> Self {
        let room = left.bytes() / ALONE_SHARE;
        // As beside copies that let them have this much.
        let beside = ByteSize(room / ALONE_ACTIVATIONS * PREFILL_SHARE);
        let activations = lane_activations(model, layers, used, beside);
        let one = in_transit(expert);
        let group = (room.saturating_sub(activations.bytes()) / 2).min(TRANSIT_MOST.max(one));
        Self { group: ByteSize(group / one * one), activations }
    }

    /// Returns the bytes of all of it; zero if there is no room.
    pub const fn bytes(&self) -> ByteSize {
        match self.group.bytes() {
            0 => ByteSize::ZERO,
            group => ByteSize(2 * group + self.activations.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transit_slots_leave_most_memory_to_copies() {
        for expert in [100, 40 << 10, 3 << 20, 100 << 20].map(ByteSize) {
            let (one, least) = (in_transit(expert), least_copies_beside_transit(expert));
            assert_eq!(lane_transit(expert, ByteSize(least.bytes() - 1)), ByteSize::ZERO);
            assert_eq!(least.bytes(), 16 * one);
            for experts in [16, 17, 100, 10_000] {
                let copies = ByteSize(experts * one);
                let group = lane_transit(expert, copies).bytes();
                assert!(group >= one && 2 * group <= copies.bytes() / 8, "{expert} {experts}: {group}");
                assert!(group <= TRANSIT_MOST.max(one), "{expert} {experts}: {group}");
                assert!(group <= lane_transit(expert, copies + expert).bytes(), "more is not less");
            }
        }
    }
}
