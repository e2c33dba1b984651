//! Activations in the arrangement that the kernels use.

use super::WeightBlock;

/// Elements of a block of K-quants.
pub const BLOCK: usize = 256;
/// Number of blocks whose scales are unpacked together: one per 128-bit lane of a register.
pub const GROUP: usize = 4;

/// ggml's block of converted activations (`block_q8_K` in `ggml-common.h`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Q8K {
    pub d: f32,
    pub qs: [i8; BLOCK],
    pub bsums: [i16; BLOCK / 16],
}

impl Q8K {
    pub const ZERO: Self = Self { d: 0.0, qs: [0; BLOCK], bsums: [0; BLOCK / 16] };

    pub fn has_bits_of(&self, other: &Self) -> bool {
        self.d.to_bits() == other.d.to_bits() && self.qs == other.qs && self.bsums == other.bsums
    }
}

/// The arrangement of activations in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// In order, with sums of 16.
    Plain,
    /// For 4-bit weights, where 64 weights are 32 low nibbles and 32 high ones: a register of 64
    /// low nibbles meets the first and third 32 of 128 activations, the high ones the second and
    /// fourth. With sums of 32.
    Nibbles,
    /// For weights of 2 bits, where 32 bytes have 128: a register has the weights of a pair of bits of the first 128 and of
    /// the second. With sums of 16.
    TwoBits,
}

/// Up to [`GROUP`] blocks of activations.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Group {
    /// Four registers for each block.
    pub qs: [[[i8; 64]; 4]; GROUP],
    /// With [`Order::Nibbles`], 8 sums per block in the first half; otherwise 16 per block.
    pub sums: [i16; 16 * GROUP],
    /// Scale and negated scale of each block.
    pub scales: [f32; 2 * GROUP],
}

impl Default for Group {
    fn default() -> Self {
        Self { qs: [[[0; 64]; 4]; GROUP], sums: [0; 16 * GROUP], scales: [0.0; 2 * GROUP] }
    }
}

impl Group {
    /// Arranges `blocks`, at most [`GROUP`].
    pub fn arrange(&mut self, blocks: &[Q8K], order: Order) {
        for (b, block) in blocks.iter().enumerate() {
            (self.scales[2 * b], self.scales[2 * b + 1]) = (block.d, -block.d);
            match order {
                Order::Plain => {
                    for (to, from) in self.qs[b].iter_mut().zip(block.qs.as_chunks().0) {
                        *to = *from;
                    }
                    self.sums[16 * b..][..16].copy_from_slice(&block.bsums);
                }
                Order::TwoBits => {
                    for (i, from) in block.qs.chunks_exact(32).enumerate() {
                        self.qs[b][i % 4][i / 4 * 32..][..32].copy_from_slice(from);
                    }
                    self.sums[16 * b..][..16].copy_from_slice(&block.bsums);
                }
                Order::Nibbles => {
                    for (i, from) in block.qs.chunks_exact(32).enumerate() {
                        let (half, register) = (i % 4 / 2, i / 4 * 2 + i % 2);
                        self.qs[b][register][half * 32..][..32].copy_from_slice(from);
                    }
                    for (to, pair) in self.sums[8 * b..][..8].iter_mut().zip(block.bsums.as_chunks::<2>().0) {
                        *to = pair[0] + pair[1];
                    }
                }
            }
        }
    }
}

/// Makes pseudo-random rows of weights and columns of activations, of `blocks` blocks each.
pub fn random_rows(block: WeightBlock, rows: usize, columns: usize, blocks: usize) -> (Vec<u8>, Vec<f32>) {
    let WeightBlock { bytes, scales } = block;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ blocks as u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut weights: Vec<u8> = (0..rows * blocks * bytes).map(|_| next() as u8).collect();
    for block in weights.chunks_mut(bytes) {
        for &at in scales {
            // 16-bit floats of either sign between 2^-10 and 2^-3.
            let high = block[at + 1];
            block[at + 1] = (0x14 + high % 0x1c) | (high & 0x80);
        }
    }
    let floats = (0..columns * blocks * BLOCK).map(|_| (next() % 4001) as f32 / 1000.0 - 2.0).collect();
    (weights, floats)
}
