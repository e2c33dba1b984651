//! Weights as unsigned bytes, with the scales of their blocks, in plain Rust.

use super::super::interleave;
use super::{BLOCK, BlockScales, LANES, MINIMA, Panel, PanelRange, SUBS, form, grid};
use crate::WeightType;
use crate::blocks::IQ4_NL_BYTES;
use crate::half::f16_to_f32;

/// The scales of one block.
pub(super) struct Scales {
    pub scale: f32,
    pub minimum: f32,
    /// Of each sub-block.
    pub subs: [i16; SUBS],
    /// Of each sub-block, where the type has them.
    pub minima: [i16; SUBS],
}

/// Reads a block's scales.
///
/// # Safety
/// `block` is valid for the block.
pub(super) unsafe fn scales(ty: WeightType, block: *const u8) -> Scales {
    let mut to = Scales { scale: 0.0, minimum: 0.0, subs: [0; SUBS], minima: [0; SUBS] };
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let byte = |at: usize| *block.add(at);
        let half = |at: usize| f16_to_f32(block.add(at).cast::<u16>().read_unaligned());
        match ty {
            WeightType::Q2K => {
                (to.scale, to.minimum) = (half(80), half(82));
                for j in 0..16 {
                    to.subs[j] = i16::from(byte(j) & 15);
                    to.minima[j] = i16::from(byte(j) >> 4);
                }
            }
            WeightType::Q3K => {
                to.scale = half(108);
                for j in 0..16 {
                    let low = byte(96 + j % 8) >> (j / 8 * 4) & 15;
                    let high = byte(104 + j % 4) >> (j / 4 * 2) & 3;
                    to.subs[j] = i16::from(low | high << 4) - 32;
                }
            }
            WeightType::Q4K | WeightType::Q5K => {
                (to.scale, to.minimum) = (half(0), half(2));
                for j in 0..8 {
                    let (scale, minimum) = if j < 4 {
                        (byte(4 + j) & 63, byte(8 + j) & 63)
                    } else {
                        (
                            (byte(8 + j) & 15) | (byte(j) >> 6 << 4),
                            (byte(8 + j) >> 4) | (byte(4 + j) >> 6 << 4),
                        )
                    };
                    (to.subs[j], to.minima[j]) = (i16::from(scale), i16::from(minimum));
                }
            }
            WeightType::Q6K => {
                to.scale = half(208);
                for j in 0..16 {
                    to.subs[j] = i16::from(byte(192 + j).cast_signed());
                }
            }
            _ if ty.has_grid() => to.scale = grid::scales(ty, block, &mut to.subs),
            _ => {
                to.scale = half(0);
                let high = block.add(2).cast::<u16>().read_unaligned();
                for j in 0..8 {
                    let low = byte(4 + j / 2) >> (j % 2 * 4) & 15;
                    to.subs[j] = i16::from(low | ((high >> (2 * j) & 3) as u8) << 4) - 32;
                }
            }
        }
    }
    to
}

/// Writes the scales of a row's block; `sub` is how a sub-block's scale is written.
///
/// # Safety
/// `block` is valid for the block.
unsafe fn write_scales(
    ty: WeightType,
    block: *const u8,
    lane: usize,
    to: &mut BlockScales,
    sub: impl Fn(i16) -> i32,
) {
    // SAFETY: the caller's contract.
    let from = unsafe { scales(ty, block) };
    to.scale[lane] = from.scale;
    to.minimum[lane] = from.minimum;
    let has_minima = form(ty).1 == MINIMA;
    for j in 0..SUBS {
        to.subs[j][lane] = sub(from.subs[j]);
        to.pairs[j / 2][lane][j % 2] =
            if has_minima { from.minima[j] } else { -(ty.offset() as i16) * from.subs[j] };
    }
}

/// Writes 32 values from `at` on, the number of a value of the row.
///
/// # Safety
/// `row` is valid for the row.
#[inline(always)]
unsafe fn values(ty: WeightType, row: *const u8, at: usize, to: &mut [u8; 32]) {
    let (sub, half, quarter) = (at % 256 / 32, at % 256 / 128, at % 128 / 32);
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let block = row.add(at / BLOCK * ty.block_bytes());
        match ty {
            WeightType::Q2K => {
                let pairs = block.add(16 + half * 32);
                for (i, to) in to.iter_mut().enumerate() {
                    *to = *pairs.add(i) >> (quarter * 2) & 3;
                }
            }
            WeightType::Q3K => {
                let (high, pairs) = (block, block.add(32 + half * 32));
                for (i, to) in to.iter_mut().enumerate() {
                    *to = (*pairs.add(i) >> (quarter * 2) & 3) | ((*high.add(i) >> sub & 1) * 4);
                }
            }
            WeightType::Q4K => {
                let nibbles = block.add(16 + sub / 2 * 32);
                for (i, to) in to.iter_mut().enumerate() {
                    *to = *nibbles.add(i) >> (sub % 2 * 4) & 15;
                }
            }
            WeightType::Q5K => {
                let (high, nibbles) = (block.add(16), block.add(48 + sub / 2 * 32));
                for (i, to) in to.iter_mut().enumerate() {
                    *to = (*nibbles.add(i) >> (sub % 2 * 4) & 15) | ((*high.add(i) >> sub & 1) * 16);
                }
            }
            WeightType::Q6K => {
                let (low, high) = (block.add(half * 64 + quarter % 2 * 32), block.add(128 + half * 32));
                for (i, to) in to.iter_mut().enumerate() {
                    let low = *low.add(i) >> (quarter / 2 * 4) & 15;
                    *to = low | ((*high.add(i) >> (quarter * 2) & 3) << 4);
                }
            }
            _ if ty.has_grid() => {
                let (bytes, signs) = grid::weights(ty, block, sub);
                for (i, to) in to.iter_mut().enumerate() {
                    let byte = bytes[i / 8].to_le_bytes()[i % 8];
                    *to = if signs >> i & 1 == 1 { byte.wrapping_neg() } else { byte };
                }
            }
            _ => {
                let nibbles = block.add(8 + sub * 16);
                for i in 0..16 {
                    to[i] = IQ4_NL_BYTES[usize::from(*nibbles.add(i) & 15)];
                    to[i + 16] = IQ4_NL_BYTES[usize::from(*nibbles.add(i) >> 4)];
                }
            }
        }
    }
}

/// Unpacks a part of a panel. Lanes after the last row repeat it. `sub` is how a sub-block's scale is written.
///
/// # Safety
/// `weights` is valid for the panel's rows.
#[inline(always)]
pub(super) unsafe fn panel(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    panel: &mut Panel,
    sub: impl Fn(i16) -> i32 + Copy,
) {
    // SAFETY: the caller's contract.
    unsafe { panel_scales(part, weights, stride, panel, sub) };
    let mut bytes = [0; 32];
    for lane in 0..lanes(part) {
        // SAFETY: the caller's contract.
        unsafe {
            let row = weights.add(lane.min(part.count - 1) * stride);
            for i in (0..part.length).step_by(32) {
                values(part.ty, row, part.from + i, &mut bytes);
                interleave(&bytes, lane, i, &mut panel.bytes);
            }
        }
    }
}

/// The same for scales alone.
///
/// # Safety
/// As for [`panel`].
#[inline(always)]
pub(super) unsafe fn panel_scales(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    panel: &mut Panel,
    sub: impl Fn(i16) -> i32 + Copy,
) {
    for lane in 0..lanes(part) {
        // SAFETY: the caller's contract.
        unsafe {
            let row = weights.add(lane.min(part.count - 1) * stride);
            for i in (0..part.length).step_by(BLOCK) {
                let block = row.add((part.from + i) / BLOCK * part.ty.block_bytes());
                let scales = &mut panel.blocks[lane / LANES][i / BLOCK];
                write_scales(part.ty, block, lane % LANES, scales, sub);
            }
        }
    }
}

/// Lanes of whole vectors that have the rows.
const fn lanes(part: &PanelRange) -> usize {
    if part.count > LANES { 2 * LANES } else { LANES }
}
