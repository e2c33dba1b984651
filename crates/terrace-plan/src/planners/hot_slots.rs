//! How many slots each layer gets.

use terrace_model::ByteSize;

/// A layer whose experts can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotLayer {
    /// Experts that it has.
    pub experts: u32,
    /// Bytes of one of them, all matrices together.
    pub bundle: ByteSize,
}

/// Slots by layer within the budget: the same share of every layer's experts, rounded down, and what is then left goes to the
/// first layers, one slot each. Layers are used alike, one after the other by every token, so a share is worth the same
/// in each.
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
