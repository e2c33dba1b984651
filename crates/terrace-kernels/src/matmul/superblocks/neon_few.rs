//! Products of few rows of activations with DotProd: weights go from memory to products without a panel.

use super::super::RowGroup;
use super::super::columns::{Products, by_fours};
use super::super::neon::{Values, sdot, store_results, table, transpose, values};
use super::{BLOCK, Column, Layout, MINIMA, SUBS, form, unpack};
use crate::WeightType;
use std::arch::aarch64::*;

/// Multiplies 16 rows, or what is left of them, with the columns.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has DotProd.
#[target_feature(enable = "neon,dotprod")]
pub(in super::super) unsafe fn run(group: &RowGroup, columns: &[Column]) {
    debug_assert!(!group.interleaved, "a layout of other instructions");
    for first in (0..group.count).step_by(4) {
        // SAFETY: the caller's contract.
        unsafe {
            match group.ty {
                WeightType::Q2K => by_fours(columns, &Few::<{ WeightType::Q2K as usize }> { group, first }),
                WeightType::Q3K => by_fours(columns, &Few::<{ WeightType::Q3K as usize }> { group, first }),
                WeightType::Q4K => by_fours(columns, &Few::<{ WeightType::Q4K as usize }> { group, first }),
                WeightType::Q5K => by_fours(columns, &Few::<{ WeightType::Q5K as usize }> { group, first }),
                WeightType::Q6K => by_fours(columns, &Few::<{ WeightType::Q6K as usize }> { group, first }),
                WeightType::Iq4Xs => {
                    by_fours(columns, &Few::<{ WeightType::Iq4Xs as usize }> { group, first });
                }
                _ => unreachable!("a type with superblocks and without a grid"),
            }
        }
    }
}

/// Products of four rows from `first` on, of the type with this number in [`WeightType::ALL`].
struct Few<'a, const TY: usize> {
    group: &'a RowGroup,
    first: usize,
}

impl<const TY: usize> Few<'_, TY> {
    const TY: WeightType = WeightType::ALL[TY];
    /// Values of a sub-block.
    const SUB: usize = form(Self::TY).0;
    const HAS_MINIMA: bool = form(Self::TY).1 == MINIMA;
}

impl<const TY: usize> Products for Few<'_, TY> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { group, first } = *self;
        let (ty, layout) = (Self::TY, Layout::of(group.length));
        // SAFETY: the caller's contract.
        unsafe {
            let (rows, table) = (group.rows::<4>(first), table(ty));
            let mut results = [vdupq_n_f32(0.0); N];
            for block in 0..group.length / BLOCK {
                let scales = Scales::read(ty, rows, block);
                let mut totals = [vdupq_n_s32(0); N];
                for i in 0..BLOCK / 32 {
                    let at = block * BLOCK + 32 * i;
                    let mut weights: [Values; 4] = [[vdupq_n_s8(0); 2]; 4];
                    for (weights, row) in weights.iter_mut().zip(rows) {
                        *weights = values(ty, row, at, table);
                    }
                    for (column, total) in columns.iter().zip(&mut totals) {
                        let input = column.input.add(at).cast::<i8>();
                        let (low, high) = (vld1q_s8(input), vld1q_s8(input.add(16)));
                        let (mut firsts, mut seconds) = ([vdupq_n_s32(0); 4], [vdupq_n_s32(0); 4]);
                        for (row, weights) in weights.iter().enumerate() {
                            firsts[row] = sdot(firsts[row], weights[0], low);
                            if Self::SUB == 16 {
                                seconds[row] = sdot(seconds[row], weights[1], high);
                            } else {
                                firsts[row] = sdot(firsts[row], weights[1], high);
                            }
                        }
                        if Self::SUB == 16 {
                            *total = vmlaq_s32(*total, across(firsts), scales.subs[2 * i]);
                            *total = vmlaq_s32(*total, across(seconds), scales.subs[2 * i + 1]);
                        } else {
                            *total = vmlaq_s32(*total, across(firsts), scales.subs[i]);
                        }
                    }
                }
                for (column, (results, total)) in columns.iter().zip(results.iter_mut().zip(totals)) {
                    let input = column.input.add(layout.scales).cast::<f32>().add(block).read();
                    let factor = vmulq_n_f32(scales.scale, input);
                    *results = vfmaq_f32(*results, vcvtq_f32_s32(total), factor);
                    if Self::HAS_MINIMA {
                        let sums = column.input.add(layout.sums(Self::SUB, block * BLOCK)).cast::<i16>();
                        let mut others = vdupq_n_s32(0);
                        for (sub, minima) in scales.minima[..BLOCK / Self::SUB].iter().enumerate() {
                            others = vmlaq_n_s32(others, *minima, i32::from(sums.add(sub).read()));
                        }
                        let factor = vmulq_n_f32(scales.minimum, input);
                        *results = vfmsq_f32(*results, vcvtq_f32_s32(others), factor);
                    }
                }
            }
            for (column, results) in columns.iter().zip(results) {
                let to = column.out.add(group.first + first);
                store_results([results; 2], to, (group.count - first).min(4));
            }
        }
    }
}

/// The sum of each of four vectors.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn across([a, b, c, d]: [int32x4_t; 4]) -> int32x4_t {
    // SAFETY: the caller's contract.
    unsafe { vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)) }
}

/// The scales of a block of each of four rows.
struct Scales {
    scale: float32x4_t,
    minimum: float32x4_t,
    /// Of each sub-block.
    subs: [int32x4_t; SUBS],
    minima: [int32x4_t; SUBS],
}

impl Scales {
    /// # Safety
    /// `rows` are valid for the block; the machine has NEON.
    #[inline(always)]
    unsafe fn read(ty: WeightType, rows: [*const u8; 4], block: usize) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let (mut scale, mut minimum) = ([0.0; 4], [0.0; 4]);
            let (mut subs, mut minima) = ([vdupq_n_s8(0); 4], [vdupq_n_s8(0); 4]);
            for (i, row) in rows.into_iter().enumerate() {
                let of_row = RowScales::read(ty, row.add(block * ty.block_bytes()));
                (scale[i], minimum[i]) = (of_row.scale, of_row.minimum);
                (subs[i], minima[i]) = (of_row.subs, of_row.minima);
            }
            let (scale, minimum) = (vld1q_f32(scale.as_ptr()), vld1q_f32(minimum.as_ptr()));
            Self { scale, minimum, subs: side_by_side(subs), minima: side_by_side(minima) }
        }
    }
}

/// The scales of a block of one row. Those of sub-blocks are bytes, of all types.
struct RowScales {
    scale: f32,
    minimum: f32,
    subs: int8x16_t,
    minima: int8x16_t,
}

impl RowScales {
    /// # Safety
    /// `block` is valid for the block; the machine has NEON.
    #[inline(always)]
    unsafe fn read(ty: WeightType, block: *const u8) -> Self {
        // SAFETY: the caller's contract: the blocks' layouts are ggml's.
        unsafe {
            match ty {
                WeightType::Q4K | WeightType::Q5K => {
                    let word = |at: usize| block.add(at).cast::<u32>().read_unaligned();
                    let (a, b, c) = (word(4), word(8), word(12));
                    let eight = |low: u32, nibbles: u32| {
                        let high = (nibbles & 0x0f0f_0f0f) | (low >> 6 & 0x0303_0303) << 4;
                        let both = u64::from(low & 0x3f3f_3f3f) | u64::from(high) << 32;
                        vcombine_s8(vcreate_s8(both), vdup_n_s8(0))
                    };
                    Self {
                        scale: half(block),
                        minimum: half(block.add(2)),
                        subs: eight(a, c),
                        minima: eight(b, c >> 4),
                    }
                }
                WeightType::Q6K => Self {
                    scale: half(block.add(208)),
                    minimum: 0.0,
                    subs: vld1q_s8(block.add(192).cast()),
                    minima: vdupq_n_s8(0),
                },
                _ => {
                    let from = unpack::scales(ty, block);
                    let (subs, minima) = (from.subs.map(|sub| sub as i8), from.minima.map(|sub| sub as i8));
                    Self {
                        scale: from.scale,
                        minimum: from.minimum,
                        subs: vld1q_s8(subs.as_ptr()),
                        minima: vld1q_s8(minima.as_ptr()),
                    }
                }
            }
        }
    }
}

/// # Safety
/// Two bytes can be read; the machine has NEON.
#[inline(always)]
unsafe fn half(at: *const u8) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let half = vdup_n_u16(at.cast::<u16>().read_unaligned());
        vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(half)))
    }
}

/// For each byte: those of four rows as numbers.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn side_by_side(rows: [int8x16_t; 4]) -> [int32x4_t; SUBS] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut to = [vdupq_n_s32(0); SUBS];
        let mut numbers = [[to[0]; 4]; 4];
        for (row, bytes) in rows.into_iter().enumerate() {
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            numbers[0][row] = vmovl_s16(vget_low_s16(low));
            numbers[1][row] = vmovl_high_s16(low);
            numbers[2][row] = vmovl_s16(vget_low_s16(high));
            numbers[3][row] = vmovl_high_s16(high);
        }
        for (to, numbers) in to.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&transpose(numbers));
        }
        to
    }
}
