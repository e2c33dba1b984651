//! Weights as unsigned bytes, with the scales of their blocks.

use super::super::interleave;
use super::{LANES, Panel, PanelRange};
use crate::WeightType;
use crate::blocks::IQ4_NL_BYTES;
use crate::half::f16_to_f32;

/// Values of the nibbles of a type, plus its offset.
pub(in super::super) const fn table(ty: WeightType) -> [u8; 16] {
    match ty {
        WeightType::Iq4Nl => IQ4_NL_BYTES,
        // Twice the values of E2M1.
        WeightType::Mxfp4 => [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0],
        _ => [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    }
}

/// Half of the power of two that an exponent of MXFP4 stands for.
#[inline(always)]
pub(super) const fn half_power(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent as u32 - 1) << 23 })
}

/// Writes 32 values from `at` on, the number of a value of the row.
///
/// # Safety
/// `row` is valid for the row.
#[inline(always)]
pub(super) unsafe fn values(ty: WeightType, row: *const u8, at: usize, to: &mut [u8; 32]) {
    let block_at = at / ty.block() * ty.block_bytes();
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let block = row.add(block_at);
        match ty {
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Iq4Nl | WeightType::Mxfp4 => {
                let table = table(ty);
                let nibbles = block.add(ty.block_bytes() - 16);
                for i in 0..16 {
                    to[i] = table[usize::from(*nibbles.add(i) & 15)];
                    to[i + 16] = table[usize::from(*nibbles.add(i) >> 4)];
                }
            }
            WeightType::Q8_0 => {
                for (i, to) in to.iter_mut().enumerate() {
                    *to = *block.add(2 + i) ^ 0x80;
                }
            }
            WeightType::Q5_0 | WeightType::Q5_1 => {
                let nibbles = block.add(ty.block_bytes() - 16);
                let high = nibbles.sub(4).cast::<u32>().read_unaligned();
                for i in 0..16 {
                    to[i] = (*nibbles.add(i) & 15) | ((high >> i & 1) as u8 * 16);
                    to[i + 16] = (*nibbles.add(i) >> 4) | ((high >> (i + 16) & 1) as u8 * 16);
                }
            }
            _ => unreachable!("a type with superblocks"),
        }
    }
}

/// Writes the scales, and minima, of a panel's part of a row.
///
/// # Safety
/// `row` is valid for the row.
#[inline(always)]
pub(super) unsafe fn scales(part: &PanelRange, row: *const u8, lane: usize, panel: &mut Panel) {
    let ty = part.ty;
    let (vector, lane) = (lane / LANES, lane % LANES);
    let scales = &mut panel.scales[vector];
    let half = |at: *const u8| {
        // SAFETY: within a block.
        f16_to_f32(unsafe { at.cast::<u16>().read_unaligned() })
    };
    // SAFETY: the caller's contract.
    unsafe {
        let first = row.add(part.from / ty.block() * ty.block_bytes());
        match ty {
            WeightType::Q4_1 | WeightType::Q5_1 => {
                let minima = &mut panel.minima[vector];
                for (i, (scale, minimum)) in scales.iter_mut().zip(minima).enumerate().take(part.length / 32)
                {
                    let block = first.add(i * ty.block_bytes());
                    scale[lane] = half(block);
                    minimum[lane] = -half(block.add(2));
                }
            }
            WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Iq4Nl | WeightType::Q8_0 => {
                for (i, scale) in scales[..part.length / 32].iter_mut().enumerate() {
                    scale[lane] = half(first.add(i * ty.block_bytes()));
                }
            }
            WeightType::Mxfp4 => {
                for (i, scale) in scales[..part.length / 32].iter_mut().enumerate() {
                    scale[lane] = half_power(*first.add(i * ty.block_bytes()));
                }
            }
            _ => unreachable!("a type with superblocks"),
        }
    }
}

/// Unpacks a part of a panel. Lanes after the last row repeat it.
///
/// # Safety
/// `weights` is valid for the panel's rows.
#[inline(always)]
pub(super) unsafe fn panel(part: &PanelRange, weights: *const u8, stride: usize, panel: &mut Panel) {
    let lanes = if part.count > LANES { 2 * LANES } else { LANES };
    let mut bytes = [0; 32];
    for lane in 0..lanes {
        // SAFETY: the caller's contract.
        unsafe {
            let row = weights.add(lane.min(part.count - 1) * stride);
            scales(part, row, lane, panel);
            for i in (0..part.length).step_by(32) {
                values(part.ty, row, part.from + i, &mut bytes);
                interleave(&bytes, lane, i, &mut panel.bytes);
            }
        }
    }
}
