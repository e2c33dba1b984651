//! Products with NEON.

use super::super::RowGroup;
use super::super::columns::{Products, by_fours};
use super::super::neon::{
    DotProd, HALF, I8mm, Level, Plain, Values, bytes, load_results, sdot, store_results, table, values,
};
use super::{BLOCK, Column, LANES, Layout, Panel, PanelRange, unpack};
use crate::half::{f16_to_f32, f32_to_f16};
use crate::{Isa, WeightType};
use std::arch::aarch64::*;

/// See [`super::quantise`].
///
/// # Safety
/// As there.
pub(super) unsafe fn quantise(length: usize, from: *const f32, to: *mut u8) {
    let layout = Layout::of(length);
    for block in 0..length / BLOCK {
        // SAFETY: the caller's contract: the parts of the layout do not overlap.
        unsafe {
            let mut floats = [vdupq_n_f32(0.0); 8];
            let mut largest = floats[0];
            for (i, floats) in floats.iter_mut().enumerate() {
                *floats = vld1q_f32(from.add(block * BLOCK + 4 * i));
                largest = vmaxnmq_f32(largest, vabsq_f32(*floats));
            }
            let largest = vmaxnmvq_f32(largest);
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            let scale = f16_to_f32(f32_to_f16(largest / 127.0));
            to.add(layout.scales).cast::<f32>().add(block).write(scale);
            let mut sum = 0i32;
            for (half, floats) in floats.chunks_exact(4).enumerate() {
                let mut numbers = [vdupq_n_s32(0); 4];
                for (numbers, floats) in numbers.iter_mut().zip(floats) {
                    *numbers = vcvtnq_s32_f32(vmulq_n_f32(*floats, inverse));
                }
                let [a, b, c, d] = numbers;
                let low = vqmovn_high_s32(vqmovn_s32(a), b);
                let all = vqmovn_high_s16(vqmovn_s16(low), vqmovn_high_s32(vqmovn_s32(c), d));
                vst1q_s8(to.add(block * BLOCK + 16 * half).cast(), all);
                sum += i32::from(vaddlvq_s8(all));
            }
            to.add(layout.sums).cast::<i32>().add(block).write(sum);
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
        for lane in 0..part.count.next_multiple_of(HALF) {
            unpack::scales(part, weights.add(lane.min(part.count - 1) * stride), lane, panel);
        }
        for first in (0..part.count).step_by(HALF) {
            let level = std::marker::PhantomData::<L>;
            by_fours(columns, &Sums { part, panel, first, level });
        }
    }
}

/// Products of 8 rows from `first` on.
struct Sums<'a, L> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
    first: usize,
    level: std::marker::PhantomData<L>,
}

impl<L: Level> Products for Sums<'_, L> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel, first, .. } = *self;
        let (vector, lane) = (first / LANES, first % LANES);
        let (row, count) = (part.first + first, part.count - first);
        let layout = Layout::of(part.row);
        // SAFETY: the caller's contract; rows after the last are neither loaded nor stored.
        unsafe {
            let mut sums = [[vdupq_n_f32(0.0); 2]; N];
            if part.from > 0 {
                for (sums, column) in sums.iter_mut().zip(columns) {
                    *sums = load_results(column.out.add(row), count);
                }
            }
            let weights = panel.bytes[vector].as_ptr().cast::<i8>().add(lane * L::SIDE);
            for block in 0..part.length / BLOCK {
                let at = part.from + block * BLOCK;
                let mut inputs = [std::ptr::null(); N];
                for (input, column) in inputs.iter_mut().zip(columns) {
                    *input = column.input.add(at).cast::<i8>();
                }
                let dots = L::dots(weights.add(block * BLOCK * LANES), &inputs, BLOCK);
                let scales = panel.scales[vector][block].as_ptr().add(lane);
                let minima = panel.minima[vector][block].as_ptr().add(lane);
                for (column, (sums, dots)) in columns.iter().zip(sums.iter_mut().zip(dots)) {
                    let input = column.input.add(layout.scales).cast::<f32>().add(at / BLOCK).read();
                    let sum = column.input.add(layout.sums).cast::<i32>().add(at / BLOCK).read();
                    for (half, (sums, dots)) in sums.iter_mut().zip(dots).enumerate() {
                        let factor = vmulq_n_f32(vld1q_f32(scales.add(4 * half)), input);
                        *sums = vfmaq_f32(*sums, vcvtq_f32_s32(dots), factor);
                        if part.ty.has_minima() {
                            let minimum = vld1q_f32(minima.add(4 * half));
                            *sums = vfmsq_n_f32(*sums, minimum, input * sum as f32);
                        }
                    }
                }
            }
            for (sums, column) in sums.into_iter().zip(columns) {
                store_results(sums, column.out.add(row), count);
            }
        }
    }
}

/// Multiplies 16 rows, or what is left of them, with few columns, without a panel.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has DotProd.
#[target_feature(enable = "neon,dotprod")]
pub(in super::super) unsafe fn run_few(group: &RowGroup, columns: &[Column]) {
    debug_assert!(!group.interleaved, "a layout of other instructions");
    for first in (0..group.count).step_by(4) {
        // SAFETY: the caller's contract.
        unsafe {
            match group.ty {
                WeightType::Q4_0 => by_fours(columns, &Few::<{ WeightType::Q4_0 as usize }> { group, first }),
                WeightType::Q4_1 => by_fours(columns, &Few::<{ WeightType::Q4_1 as usize }> { group, first }),
                WeightType::Q5_0 => by_fours(columns, &Few::<{ WeightType::Q5_0 as usize }> { group, first }),
                WeightType::Q5_1 => by_fours(columns, &Few::<{ WeightType::Q5_1 as usize }> { group, first }),
                WeightType::Q8_0 => by_fours(columns, &Few::<{ WeightType::Q8_0 as usize }> { group, first }),
                WeightType::Iq4Nl => {
                    by_fours(columns, &Few::<{ WeightType::Iq4Nl as usize }> { group, first });
                }
                WeightType::Mxfp4 => {
                    by_fours(columns, &Few::<{ WeightType::Mxfp4 as usize }> { group, first });
                }
                _ => unreachable!("a type with superblocks"),
            }
        }
    }
}

/// Products of four rows from `first` on, of the type with this number in [`WeightType::ALL`].
struct Few<'a, const TY: usize> {
    group: &'a RowGroup,
    first: usize,
}

impl<const TY: usize> Products for Few<'_, TY> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { group, first } = *self;
        let (ty, layout) = (WeightType::ALL[TY], Layout::of(group.length));
        // SAFETY: the caller's contract: a block begins with its scale.
        unsafe {
            let (rows, table) = (group.rows::<4>(first), table(ty));
            let mut sums = [vdupq_n_f32(0.0); N];
            for block in 0..group.length / BLOCK {
                let mut weights: [Values; 4] = [[vdupq_n_s8(0); 2]; 4];
                let (mut scales, mut minima) = ([0u16; 4], [0u16; 4]);
                for (i, row) in rows.into_iter().enumerate() {
                    weights[i] = values(ty, row, block * BLOCK, table);
                    let block = row.add(block * ty.block_bytes()).cast::<u16>();
                    scales[i] = block.read_unaligned();
                    minima[i] = block.add(1).read_unaligned();
                }
                let scale = if ty == WeightType::Mxfp4 {
                    vld1q_f32(scales.map(|scale| unpack::half_power(scale as u8)).as_ptr())
                } else {
                    halves(scales)
                };
                let minimum = halves(minima);
                for (column, sums) in columns.iter().zip(&mut sums) {
                    let input = column.input.add(block * BLOCK).cast::<i8>();
                    let (low, high) = (vld1q_s8(input), vld1q_s8(input.add(16)));
                    let mut dots = [vdupq_n_s32(0); 4];
                    for (dot, weights) in dots.iter_mut().zip(&weights) {
                        *dot = sdot(sdot(*dot, weights[0], low), weights[1], high);
                    }
                    let dots = vpaddq_s32(vpaddq_s32(dots[0], dots[1]), vpaddq_s32(dots[2], dots[3]));
                    let factor = column.input.add(layout.scales).cast::<f32>().add(block).read();
                    *sums = vfmaq_f32(*sums, vcvtq_f32_s32(dots), vmulq_n_f32(scale, factor));
                    if ty.has_minima() {
                        let sum = column.input.add(layout.sums).cast::<i32>().add(block).read();
                        // The panel has minima with their signs turned, and subtracts them.
                        *sums = vfmaq_n_f32(*sums, minimum, factor * sum as f32);
                    }
                }
            }
            for (column, sums) in columns.iter().zip(sums) {
                let to = column.out.add(group.first + first);
                store_results([sums; 2], to, (group.count - first).min(4));
            }
        }
    }
}

/// Halves as floats.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn halves(bits: [u16; 4]) -> float32x4_t {
    // SAFETY: four numbers.
    unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits.as_ptr()))) }
}
