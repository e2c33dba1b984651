//! Products in plain Rust.

use super::{BLOCK, Column, LANES, Layout, Panel, PanelRange, unpack};
use crate::half::{f16_to_f32, f32_to_f16};

/// See [`super::quantise`].
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn quantise(length: usize, from: *const f32, to: *mut u8) {
    let layout = Layout::of(length);
    // SAFETY: the caller's contract: the parts of the layout do not overlap.
    unsafe {
        let from = std::slice::from_raw_parts(from, length);
        for (block, values) in from.chunks_exact(BLOCK).enumerate() {
            let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            let scale = f16_to_f32(f32_to_f16(largest / 127.0));
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            to.add(layout.scales).cast::<f32>().add(block).write(scale);
            let mut sum = 0i32;
            for (i, value) in values.iter().enumerate() {
                let byte = (value * inverse).round_ties_even() as i8;
                to.add(block * BLOCK + i).cast::<i8>().write(byte);
                sum += i32::from(byte);
            }
            to.add(layout.sums).cast::<i32>().add(block).write(sum);
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`].
#[inline(always)]
pub(super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        unpack::panel(part, weights, stride, panel);
        for column in columns {
            for vector in 0..part.count.div_ceil(LANES) {
                let count = LANES.min(part.count - vector * LANES);
                let out = std::slice::from_raw_parts_mut(column.out.add(part.first + vector * LANES), count);
                add(part, column.input, panel, vector, out);
            }
        }
    }
}

/// # Safety
/// As for [`super::run`].
#[inline(always)]
unsafe fn add(part: &PanelRange, input: *const u8, panel: &Panel, vector: usize, out: &mut [f32]) {
    let layout = Layout::of(part.row);
    let mut sums = [0.0f32; LANES];
    if part.from > 0 {
        sums[..out.len()].copy_from_slice(out);
    }
    for i in 0..part.length / BLOCK {
        let at = part.from + i * BLOCK;
        // SAFETY: the caller's contract.
        unsafe {
            let values = input.add(at).cast::<i8>();
            let scale = input.add(layout.scales).cast::<f32>().add(at / BLOCK).read();
            let sum = input.add(layout.sums).cast::<i32>().add(at / BLOCK).read();
            let mut dots = [-part.ty.offset() * sum; LANES];
            for four in 0..BLOCK / 4 {
                let bytes = &panel.bytes[vector][i * BLOCK / 4 + four];
                for (lane, dot) in dots.iter_mut().enumerate() {
                    for j in 0..4 {
                        *dot += i32::from(bytes[lane * 4 + j]) * i32::from(*values.add(four * 4 + j));
                    }
                }
            }
            for (lane, dot) in dots.into_iter().enumerate() {
                sums[lane] += dot as f32 * (panel.scales[vector][i][lane] * scale);
            }
            if part.ty.has_minima() {
                for (lane, minimum) in panel.minima[vector][i].iter().enumerate() {
                    sums[lane] -= minimum * (scale * sum as f32);
                }
            }
        }
    }
    out.copy_from_slice(&sums[..out.len()]);
}
