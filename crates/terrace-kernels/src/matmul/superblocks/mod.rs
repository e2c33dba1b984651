//! Types with blocks of 256 weights: the K-quants, IQ4_XS, and the types with grids (`grid`).
//!
//! Such a block has a float for a scale, and integers that scale its sub-blocks of 16 or 32 weights. Activations are
//! quantised to blocks of 256 bytes with a scale, as ggml does for these types, so that a block's sum is an integer.
//!
//! # Order of sums
//! A result is the sum over blocks, in their order, of `block_sum * (weight_scale * activation_scale)`, each rounded by
//! one fused operation. After each block, types with minima subtract
//! `sum_of_minima * (weight_minimum * activation_scale)`, where the sum is one of integers too. All instruction sets
//! give the same bits.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2_few;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod dots;
#[cfg(target_arch = "x86_64")]
mod dots_grid;
#[cfg(target_arch = "x86_64")]
mod dots_k;
#[cfg(target_arch = "x86_64")]
pub(super) mod few;
pub(super) mod grid;
#[cfg(target_arch = "x86_64")]
mod grid_row_tables;
#[cfg(target_arch = "x86_64")]
mod grid_tables;
#[cfg(target_arch = "x86_64")]
mod load;
#[cfg(target_arch = "x86_64")]
mod load_grid;
#[cfg(target_arch = "x86_64")]
mod load_grid_rows;
#[cfg(target_arch = "x86_64")]
mod load_iq4_rows;
#[cfg(target_arch = "x86_64")]
pub mod load_rows;
#[cfg(target_arch = "x86_64")]
mod narrow_scales;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon_few;
mod scalar;
mod unpack;

use super::{CHUNK, Column, LANES, PanelBytes, PanelRange};
use crate::{Isa, WeightType};

/// Values of a block.
const BLOCK: usize = 256;
/// Sub-blocks of a block, of the types that have most.
const SUBS: usize = 16;

/// A thread's unpacked weights.
#[repr(C, align(64))]
pub(super) struct Panel {
    bytes: PanelBytes,
    blocks: [[BlockScales; CHUNK / BLOCK]; 2],
}

/// The scales of a block of each of 16 rows.
#[repr(C, align(64))]
struct BlockScales {
    scale: [f32; LANES],
    minimum: [f32; LANES],
    /// Of each sub-block, in order; in a form that the instructions want.
    subs: [[i32; LANES]; SUBS],
    /// Of pairs of sub-blocks, in order: what the sums of activations are multiplied with.
    pairs: [[[i16; 2]; LANES]; SUBS / 2],
}

#[cfg(target_arch = "x86_64")]
impl BlockScales {
    const EMPTY: Self = Self {
        scale: [0.0; LANES],
        minimum: [0.0; LANES],
        subs: [[0; LANES]; SUBS],
        pairs: [[[0; 2]; LANES]; SUBS / 2],
    };
}

/// Use of [`BlockScales::pairs`].
#[cfg(target_arch = "x86_64")]
const NO_PAIRS: u8 = 0;
/// Products are added to the block's sum: what unpacked bytes are too large by.
const OFFSETS: u8 = 1;
/// Products have a float of their own, and are subtracted.
const MINIMA: u8 = 2;

/// Use of the bytes of a type: values of a sub-block, and use of the pairs.
const fn form(ty: WeightType) -> (usize, u8) {
    match ty {
        WeightType::Q2K => (16, MINIMA),
        WeightType::Q3K | WeightType::Q6K => (16, OFFSETS),
        WeightType::Iq2Xs | WeightType::Iq2S | WeightType::Iq1M => (16, OFFSETS),
        WeightType::Q4K | WeightType::Q5K => (32, MINIMA),
        _ => (32, OFFSETS),
    }
}

/// Offsets of the parts of a row of activations.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Of the blocks' scales: floats.
    scales: usize,
    /// Of the sums of 32 values: 16-bit integers.
    sums32: usize,
    /// Of the sums of 16 values: 16-bit integers.
    sums16: usize,
    /// Of the values once more, for types with grids where rows are multiplied one at a time: of each block, the first of
    /// each four values, then the second ones, and so on.
    #[cfg(target_arch = "x86_64")]
    quads: usize,
    pub bytes: usize,
    /// Bytes with these.
    pub bytes_with_quads: usize,
}

impl Layout {
    pub const fn of(length: usize) -> Self {
        let scales = length;
        let sums32 = scales + length / BLOCK * 4;
        let sums16 = sums32 + length / 32 * 2;
        let end = (sums16 + length / 16 * 2).next_multiple_of(64);
        Self {
            scales,
            sums32,
            sums16,
            #[cfg(target_arch = "x86_64")]
            quads: end,
            bytes: end,
            bytes_with_quads: end + length,
        }
    }

    /// Scale of block number `block` of a row of activations.
    ///
    /// # Safety
    /// The row is there.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn scale(&self, row: *const u8, block: usize) -> f32 {
        // SAFETY: the caller's contract; rows are aligned to 4 bytes.
        unsafe { row.add(self.scales).cast::<f32>().add(block).read() }
    }

    /// Of the sums of `sub` values from value `at` on.
    const fn sums(&self, sub: usize, at: usize) -> usize {
        (if sub == 16 { self.sums16 } else { self.sums32 }) + at / sub * 2
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

/// Adds [`Layout::quads`] to a quantised row of activations.
///
/// # Safety
/// The row is there, with room for them; the machine has AVX-512.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn add_quads(length: usize, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe { avx512::add_quads(length, to) }
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
            Isa::Avx512Vnni | Isa::Avx512Bf16 if part.ty.has_grid() => {
                let run = if part.permutes { avx512::run_grid } else { avx512::run_narrow_grid };
                run(part, weights, stride, columns, &mut *scratch.cast());
            }
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
