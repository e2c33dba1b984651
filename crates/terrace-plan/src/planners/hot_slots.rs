//! Number of slots for copies of experts in each layer.

use terrace_model::ByteSize;

/// A layer whose experts can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotLayer {
    /// Number of experts.
    pub experts: u32,
    /// Bytes of one expert, all of its matrices together.
    pub bundle: ByteSize,
}

/// Returns the number of slots of each layer within a budget. Every layer gets the same share of
/// its experts, rounded down; the remaining budget goes to the first layers, one slot each. Every
/// token uses all layers alike, so a share is worth the same in each.
pub fn hot_slots(layers: &[HotLayer], budget: ByteSize) -> Vec<u32> {
    let all: u128 = layers.iter().map(|layer| u128::from(layer.bytes())).sum();
    let share = |layer: &HotLayer| {
        let slots = u128::from(layer.experts) * u128::from(budget.bytes()) / all.max(1);
        u32::try_from(slots).unwrap_or(u32::MAX).min(layer.experts)
    };
    let mut slots: Vec<u32> = layers.iter().map(share).collect();
    let taken = |slots: &[u32]| -> u64 {
        layers.iter().zip(slots).map(|(layer, &n)| layer.bundle.bytes() * u64::from(n)).sum()
    };
    let mut left = budget.bytes().saturating_sub(taken(&slots));
    for (layer, slots) in layers.iter().zip(&mut slots) {
        if *slots < layer.experts && layer.bundle.bytes() <= left {
            left -= layer.bundle.bytes();
            *slots += 1;
        }
    }
    slots
}

impl HotLayer {
    fn bytes(&self) -> u64 {
        self.bundle.bytes().saturating_mul(u64::from(self.experts))
    }
}
