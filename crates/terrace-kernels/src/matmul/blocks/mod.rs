//! Types with blocks of 32 weights: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and MXFP4.
//!
//! Activations are quantised to blocks of 32 bytes with a scale, which is rounded to 16 bits as ggml's is: results are
//! then as near to ggml's as sums in another order are.
//!
//! # Order of sums
//! Products of a block's bytes are added as integers, which is exact. A result is the sum over blocks, in their
//! order, of `block_sum * (weight_scale * activation_scale)`, each rounded by one fused operation where there are
//! such. Minima, where a type has them, are subtracted after each block, as
//! `minimum * (activation_scale * activation_sum)`.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2_few;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod few;
#[cfg(target_arch = "x86_64")]
mod load;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
mod scalar;
pub(super) mod unpack;

use super::{CHUNK, Column, LANES, PanelBytes, PanelRange};
use crate::Isa;

/// Values of a block.
const BLOCK: usize = 32;

/// A thread's unpacked weights.
#[repr(C, align(64))]
pub(super) struct Panel {
    bytes: PanelBytes,
    /// For each block: a float for each of 16 rows.
    scales: [[[f32; LANES]; CHUNK / BLOCK]; 2],
    minima: [[[f32; LANES]; CHUNK / BLOCK]; 2],
}

/// Offsets of the parts of a row of activations.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Of the blocks' scales: floats.
    scales: usize,
    /// Of the blocks' sums: 32-bit integers.
    sums: usize,
    pub bytes: usize,
}

impl Layout {
    pub const fn of(length: usize) -> Self {
        let scales = length.next_multiple_of(64);
        let sums = scales + length / BLOCK * 4;
        Self { scales, sums, bytes: (sums + length / BLOCK * 4).next_multiple_of(64) }
    }
}

/// See [`super::Product::quantise`].
///
/// # Safety
/// As there.
pub(super) unsafe fn quantise(length: usize, isa: Isa, from: *const f32, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => avx512::quantise(length, from, to),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => neon::quantise(length, from, to),
            _ => scalar::quantise(length, from, to),
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::Product::run`].
pub(super) unsafe fn run(
    part: &PanelRange,
    isa: Isa,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    scratch: *mut u8,
) {
    // SAFETY: the caller's contract: scratch memory that has room for a panel, aligned.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni | Isa::Avx512Bf16 => {
                avx512::run(part, weights, stride, columns, &mut *scratch.cast())
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::Avx512 => avx2::run(part, weights, stride, columns, &mut *scratch.cast()),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => {
                neon::run(part, isa, weights, stride, columns, &mut *scratch.cast());
            }
            _ => scalar::run(part, weights, stride, columns, &mut *scratch.cast()),
        }
    }
}
