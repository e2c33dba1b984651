//! Products in plain Rust.

use super::{BLOCK, Column, LANES, Layout, MINIMA, Panel, PanelRange, form, unpack};

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
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            let scale = if largest == 0.0 { 0.0 } else { 1.0 / inverse };
            to.add(layout.scales).cast::<f32>().add(block).write(scale);
            for (sub, values) in values.chunks_exact(16).enumerate() {
                let mut sum = 0i16;
                for (i, value) in values.iter().enumerate() {
                    let byte = (value * inverse).round_ties_even() as i8;
                    to.add(block * BLOCK + sub * 16 + i).cast::<i8>().write(byte);
                    sum += i16::from(byte);
                }
                to.add(layout.sums16).cast::<i16>().add(block * 16 + sub).write(sum);
            }
            for sub in 0..8 {
                let pair = to.add(layout.sums16).cast::<i16>().add(block * 16 + sub * 2);
                to.add(layout.sums32).cast::<i16>().add(block * 8 + sub).write(*pair + *pair.add(1));
            }
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
        unpack::panel(part, weights, stride, panel, i32::from);
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
    let (sub, pairs) = form(part.ty);
    let layout = Layout::of(part.row);
    for block in 0..part.length / BLOCK {
        let at = part.from + block * BLOCK;
        let scales = &panel.blocks[vector][block];
        // SAFETY: the caller's contract.
        unsafe {
            let activations = input.add(at).cast::<i8>();
            let scale = input.add(layout.scales).cast::<f32>().add(at / BLOCK).read();
            let sums = input.add(layout.sums(sub, at)).cast::<i16>();
            for (lane, out) in out.iter_mut().enumerate() {
                let (mut total, mut other) = (0i32, 0i32);
                for j in 0..BLOCK / sub {
                    let mut dot = 0i32;
                    for i in j * sub..(j + 1) * sub {
                        let byte = panel.bytes[vector][block * BLOCK / 4 + i / 4][lane * 4 + i % 4];
                        dot = dot.wrapping_add(i32::from(byte) * i32::from(*activations.add(i)));
                    }
                    total = total.wrapping_add(dot.wrapping_mul(scales.subs[j][lane]));
                    let pair = i32::from(scales.pairs[j / 2][lane][j % 2]) * i32::from(*sums.add(j));
                    other = other.wrapping_add(pair);
                }
                let before = if at > 0 { *out } else { 0.0 };
                if pairs == MINIMA {
                    let sum = (total as f32).mul_add(scales.scale[lane] * scale, before);
                    *out = (-(other as f32)).mul_add(scales.minimum[lane] * scale, sum);
                } else {
                    let total = total.wrapping_add(other);
                    *out = (total as f32).mul_add(scales.scale[lane] * scale, before);
                }
            }
        }
    }
}
