//! Products with NEON. Panels have signed bytes, so that what unpacked bytes are too large by needs no correction.

use super::super::columns::{Products, by_fours};
use super::super::neon::{DotProd, HALF, I8mm, Level, Plain, bytes, load_results, store_results};
use super::{BLOCK, BlockScales, Column, LANES, Layout, MINIMA, Panel, PanelRange, form, unpack};
use crate::Isa;
use std::arch::aarch64::*;
use std::marker::PhantomData;

/// See [`super::quantise`].
///
/// # Safety
/// As there.
pub(super) unsafe fn quantise(length: usize, from: *const f32, to: *mut u8) {
    let layout = Layout::of(length);
    for block in 0..length / BLOCK {
        // SAFETY: the caller's contract: the parts of the layout do not overlap.
        unsafe {
            let from = from.add(block * BLOCK);
            let mut largest = vdupq_n_f32(0.0);
            for i in (0..BLOCK).step_by(4) {
                largest = vmaxnmq_f32(largest, vabsq_f32(vld1q_f32(from.add(i))));
            }
            let largest = vmaxnmvq_f32(largest);
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            let scale = if largest == 0.0 { 0.0 } else { 1.0 / inverse };
            to.add(layout.scales).cast::<f32>().add(block).write(scale);
            let sums = to.add(layout.sums16).cast::<i16>().add(block * 16);
            for sub in 0..BLOCK / 16 {
                let mut numbers = [vdupq_n_s32(0); 4];
                for (i, numbers) in numbers.iter_mut().enumerate() {
                    let floats = vld1q_f32(from.add(sub * 16 + 4 * i));
                    *numbers = vcvtnq_s32_f32(vmulq_n_f32(floats, inverse));
                }
                let [a, b, c, d] = numbers;
                let low = vqmovn_high_s32(vqmovn_s32(a), b);
                let all = vqmovn_high_s16(vqmovn_s16(low), vqmovn_high_s32(vqmovn_s32(c), d));
                vst1q_s8(to.add(block * BLOCK + sub * 16).cast(), all);
                sums.add(sub).write(vaddlvq_s8(all));
            }
            let (low, high) = (vld1q_s16(sums), vld1q_s16(sums.add(8)));
            vst1q_s16(to.add(layout.sums32).cast::<i16>().add(block * 8), vpaddq_s16(low, high));
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`]; the machine has the instructions of `isa`.
pub(super) unsafe fn run(
    part: &PanelRange,
    isa: Isa,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match isa {
            Isa::NeonI8mm => run_i8mm(part, weights, stride, columns, panel),
            Isa::NeonDot => run_dot(part, weights, stride, columns, panel),
            _ => at_level::<Plain>(part, weights, stride, columns, panel),
        }
    }
}

/// # Safety
/// As for [`run`].
#[target_feature(enable = "neon,dotprod,i8mm")]
unsafe fn run_i8mm(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe { at_level::<I8mm>(part, weights, stride, columns, panel) }
}

/// # Safety
/// As for [`run`].
#[target_feature(enable = "neon,dotprod")]
unsafe fn run_dot(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe { at_level::<DotProd>(part, weights, stride, columns, panel) }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn at_level<L: Level>(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        bytes::<L>(part, weights, stride, &mut panel.bytes);
        unpack::panel_scales(part, weights, stride, panel, i32::from);
        let (sub, pairs) = form(part.ty);
        match (sub, pairs == MINIMA) {
            (16, true) => all_columns::<L, 16, true>(part, columns, panel),
            (16, false) => all_columns::<L, 16, false>(part, columns, panel),
            (_, true) => all_columns::<L, 32, true>(part, columns, panel),
            (_, false) => all_columns::<L, 32, false>(part, columns, panel),
        }
    }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn all_columns<L: Level, const SUB: usize, const HAS_MINIMA: bool>(
    part: &PanelRange,
    columns: &[Column],
    panel: &Panel,
) {
    for first in (0..part.count).step_by(HALF) {
        let sums = Sums::<L, SUB, HAS_MINIMA> { part, panel, first, level: PhantomData };
        // SAFETY: the caller's contract.
        unsafe { by_fours(columns, &sums) };
    }
}

/// Products of 8 rows from `first` on.
struct Sums<'a, L, const SUB: usize, const HAS_MINIMA: bool> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
    first: usize,
    level: PhantomData<L>,
}

impl<L: Level, const SUB: usize, const HAS_MINIMA: bool> Products for Sums<'_, L, SUB, HAS_MINIMA> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel, first, .. } = *self;
        let (vector, lane) = (first / LANES, first % LANES);
        let (row, count) = (part.first + first, part.count - first);
        let layout = Layout::of(part.row);
        // SAFETY: the caller's contract; rows after the last are neither loaded nor stored.
        unsafe {
            let mut results = [[vdupq_n_f32(0.0); 2]; N];
            if part.from > 0 {
                for (results, column) in results.iter_mut().zip(columns) {
                    *results = load_results(column.out.add(row), count);
                }
            }
            let weights = panel.bytes[vector].as_ptr().cast::<i8>().add(lane * L::SIDE);
            for block in 0..part.length / BLOCK {
                let at = part.from + block * BLOCK;
                let scales = &panel.blocks[vector][block];
                let mut totals = [[vdupq_n_s32(0); 2]; N];
                for (sub, factors) in scales.subs[..BLOCK / SUB].iter().enumerate() {
                    let mut inputs = [std::ptr::null(); N];
                    for (input, column) in inputs.iter_mut().zip(columns) {
                        *input = column.input.add(at + sub * SUB).cast::<i8>();
                    }
                    let dots = L::dots(weights.add((block * BLOCK + sub * SUB) * LANES), &inputs, SUB);
                    let factors = factors.as_ptr().add(lane);
                    let factors = [vld1q_s32(factors), vld1q_s32(factors.add(4))];
                    for (totals, dots) in totals.iter_mut().zip(dots) {
                        totals[0] = vmlaq_s32(totals[0], dots[0], factors[0]);
                        totals[1] = vmlaq_s32(totals[1], dots[1], factors[1]);
                    }
                }
                for (column, (results, totals)) in columns.iter().zip(results.iter_mut().zip(totals)) {
                    let input = column.input.add(layout.scales).cast::<f32>().add(at / BLOCK).read();
                    let sums = column.input.add(layout.sums(SUB, at)).cast::<i16>();
                    for (half, (result, total)) in results.iter_mut().zip(totals).enumerate() {
                        let lane = lane + 4 * half;
                        let scale = vld1q_f32(scales.scale.as_ptr().add(lane));
                        *result = vfmaq_f32(*result, vcvtq_f32_s32(total), vmulq_n_f32(scale, input));
                        if HAS_MINIMA {
                            let others = vcvtq_f32_s32(minima::<SUB>(scales, lane, sums));
                            let minimum = vld1q_f32(scales.minimum.as_ptr().add(lane));
                            *result = vfmsq_f32(*result, others, vmulq_n_f32(minimum, input));
                        }
                    }
                }
            }
            for (results, column) in results.into_iter().zip(columns) {
                store_results(results, column.out.add(row), count);
            }
        }
    }
}

/// The minima of sub-blocks of four rows from `lane` on, each times the sum of the activations there.
///
/// # Safety
/// `sums` is valid for a block's; the machine has NEON.
#[inline(always)]
unsafe fn minima<const SUB: usize>(scales: &BlockScales, lane: usize, sums: *const i16) -> int32x4_t {
    // SAFETY: the caller's contract.
    unsafe {
        let mut total = vdupq_n_s32(0);
        for (pair, minima) in scales.pairs[..BLOCK / SUB / 2].iter().enumerate() {
            let int16x4x2_t(first, second) = vld2_s16(minima.as_ptr().add(lane).cast());
            total = vmlal_n_s16(total, first, sums.add(2 * pair).read());
            total = vmlal_n_s16(total, second, sums.add(2 * pair + 1).read());
        }
        total
    }
}
