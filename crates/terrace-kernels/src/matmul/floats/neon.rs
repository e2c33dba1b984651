//! Products with NEON.

use super::super::columns::{Products, by_fours};
use super::super::neon::{HALF, load_results, store_results, transpose};
use super::{Column, Form, LANES, Panel, PanelRange, scalar};
use crate::WeightType;
use std::arch::aarch64::*;

/// See [`super::round`].
///
/// # Safety
/// As there.
pub(super) unsafe fn round(form: Form, length: usize, from: *const f32, to: *mut u8) {
    // SAFETY: the caller's contract; lengths are multiples of 32.
    unsafe {
        if form != Form::Halves {
            return scalar::round(form, length, from, to);
        }
        for i in (0..length).step_by(4) {
            let halves = vcvt_f16_f32(vld1q_f32(from.add(i)));
            vst1q_f32(to.cast::<f32>().add(i), vcvt_f32_f16(halves));
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`].
pub(super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        for first in (0..part.count).step_by(HALF) {
            let rows: [*const u8; HALF] = part.rows(weights, stride, first);
            unpack(part, &rows, first, panel);
        }
        for first in (0..part.count).step_by(HALF) {
            by_fours(columns, &Sums { part, panel, first });
        }
    }
}

/// Unpacks 8 rows from `first` on.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn unpack(part: &PanelRange, from: &[*const u8; HALF], first: usize, panel: &mut Panel) {
    // SAFETY: the caller's contract.
    unsafe {
        let to = panel.words[first / LANES].as_mut_ptr().cast::<i32>().add(first % LANES);
        for i in (0..part.length).step_by(4) {
            for (four, from) in from.chunks_exact(4).enumerate() {
                let mut rows = [vdupq_n_s32(0); 4];
                for (values, row) in rows.iter_mut().zip(from) {
                    let halves = vld1_u16(row.add((part.from + i) * 2).cast());
                    *values = if part.ty == WeightType::Bf16 {
                        vreinterpretq_s32_u32(vshll_n_u16::<16>(halves))
                    } else {
                        vreinterpretq_s32_f32(vcvt_f32_f16(vreinterpret_f16_u16(halves)))
                    };
                }
                for (value, words) in transpose(rows).into_iter().enumerate() {
                    vst1q_s32(to.add((i + value) * LANES + 4 * four), words);
                }
            }
        }
    }
}

/// Products of 8 rows from `first` on.
struct Sums<'a> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
    first: usize,
}

impl Products for Sums<'_> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel, first } = *self;
        let (row, count) = (part.first + first, part.count - first);
        // SAFETY: the caller's contract; rows after the last are neither loaded nor stored.
        unsafe {
            let mut sums = [[vdupq_n_f32(0.0); 2]; N];
            let words = panel.words[first / LANES].as_ptr().cast::<f32>().add(first % LANES);
            let mut at = 0;
            while at < part.length {
                let mut inputs = [vdupq_n_f32(0.0); N];
                for (input, column) in inputs.iter_mut().zip(columns) {
                    *input = vld1q_f32(column.input.cast::<f32>().add(part.from + at));
                }
                value::<0, N>(words.add(at * LANES), &inputs, &mut sums);
                value::<1, N>(words.add(at * LANES), &inputs, &mut sums);
                value::<2, N>(words.add(at * LANES), &inputs, &mut sums);
                value::<3, N>(words.add(at * LANES), &inputs, &mut sums);
                at += 4;
            }
            for (mut sums, column) in sums.into_iter().zip(columns) {
                let out = column.out.add(row);
                if part.from > 0 {
                    let before = load_results(out, count);
                    sums = [vaddq_f32(before[0], sums[0]), vaddq_f32(before[1], sums[1])];
                }
                store_results(sums, out, count);
            }
        }
    }
}

/// Adds the products of one of four values.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn value<const LANE: i32, const N: usize>(
    words: *const f32,
    inputs: &[float32x4_t; N],
    sums: &mut [[float32x4_t; 2]; N],
) {
    // SAFETY: the caller's contract.
    unsafe {
        let words = words.add(LANE as usize * LANES);
        let (low, high) = (vld1q_f32(words), vld1q_f32(words.add(4)));
        for (input, sums) in inputs.iter().zip(sums) {
            sums[0] = vfmaq_laneq_f32::<LANE>(sums[0], low, *input);
            sums[1] = vfmaq_laneq_f32::<LANE>(sums[1], high, *input);
        }
    }
}
