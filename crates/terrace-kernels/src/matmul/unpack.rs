//! Weights as unsigned bytes, with the scales of their blocks.

use super::{LANES, Panel, Part};
use crate::WeightType;
use crate::blocks::IQ4_NL_VALUES;
use crate::half::f16_to_f32;

/// What the nibbles of a type stand for, plus its offset.
pub(super) const fn table(ty: WeightType) -> [u8; 16] {
    match ty {
        WeightType::Iq4Nl | WeightType::Iq4Xs => {
            let mut table = [0; 16];
            let mut i = 0;
            while i < 16 {
                table[i] = (IQ4_NL_VALUES[i] as i16 + 128) as u8;
                i += 1;
            }
            table
        }
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
            WeightType::Q2K => {
                let (half, quarter) = (at % 256 / 128, at % 128 / 32);
                let pairs = block.add(16 + half * 32);
                for (i, to) in to.iter_mut().enumerate() {
                    *to = *pairs.add(i) >> (quarter * 2) & 3;
                }
            }
            WeightType::Q3K => {
                let (half, quarter) = (at % 256 / 128, at % 128 / 32);
                let (high, pairs) = (block, block.add(32 + half * 32));
                for (i, to) in to.iter_mut().enumerate() {
                    let high = *high.add(i) >> (half * 4 + quarter) & 1;
                    *to = (*pairs.add(i) >> (quarter * 2) & 3) | (high * 4);
                }
            }
            WeightType::Q4K => {
                let sub = at % 256 / 32;
                let nibbles = block.add(16 + sub / 2 * 32);
                for (i, to) in to.iter_mut().enumerate() {
                    *to = *nibbles.add(i) >> (sub % 2 * 4) & 15;
                }
            }
            WeightType::Q5K => {
                let sub = at % 256 / 32;
                let (high, nibbles) = (block.add(16), block.add(48 + sub / 2 * 32));
                for (i, to) in to.iter_mut().enumerate() {
                    let high = *high.add(i) >> sub & 1;
                    *to = (*nibbles.add(i) >> (sub % 2 * 4) & 15) | (high * 16);
                }
            }
            WeightType::Iq4Xs => {
                let table = table(ty);
                let nibbles = block.add(8 + at % 256 / 2);
                for i in 0..16 {
                    to[i] = table[usize::from(*nibbles.add(i) & 15)];
                    to[i + 16] = table[usize::from(*nibbles.add(i) >> 4)];
                }
            }
            WeightType::Q6K => {
                let (half, quarter) = (at % 256 / 128, at % 128 / 32);
                let low = block.add(half * 64 + quarter % 2 * 32);
                let high = block.add(128 + half * 32);
                for (i, to) in to.iter_mut().enumerate() {
                    let low = *low.add(i) >> (quarter / 2 * 4) & 15;
                    *to = low | ((*high.add(i) >> (quarter * 2) & 3) << 4);
                }
            }
        }
    }
}

/// Writes the scales, and minima, of a panel's part of a row.
///
/// # Safety
/// `row` is valid for the row.
#[inline(always)]
pub(super) unsafe fn scales(part: &Part, row: *const u8, lane: usize, panel: &mut Panel) {
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
            WeightType::Q2K => {
                for i in 0..part.length / 256 {
                    let block = first.add(i * ty.block_bytes());
                    let (scale, minimum) = (half(block.add(80)), half(block.add(82)));
                    for j in 0..16 {
                        let packed = *block.add(j);
                        scales[i * 16 + j][lane] = scale * f32::from(packed & 15);
                        panel.minima[vector][i * 16 + j][lane] = minimum * f32::from(packed >> 4);
                    }
                }
            }
            WeightType::Q3K => {
                for i in 0..part.length / 256 {
                    let block = first.add(i * ty.block_bytes());
                    let scale = half(block.add(108));
                    let packed = block.add(96).cast::<[u8; 12]>().read_unaligned();
                    for j in 0..16 {
                        let low = packed[j % 8] >> (j / 8 * 4) & 15;
                        let high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
                        scales[i * 16 + j][lane] = scale * f32::from((low | high << 4) as i8 - 32);
                    }
                }
            }
            WeightType::Iq4Xs => {
                for i in 0..part.length / 256 {
                    let block = first.add(i * ty.block_bytes());
                    let scale = half(block);
                    let high = block.add(2).cast::<u16>().read_unaligned();
                    for j in 0..8 {
                        let low = *block.add(4 + j / 2) >> (j % 2 * 4) & 15;
                        let bits = low | ((high >> (2 * j) & 3) as u8) << 4;
                        scales[i * 8 + j][lane] = scale * f32::from(bits as i8 - 32);
                    }
                }
            }
            WeightType::Q4K | WeightType::Q5K => {
                for i in 0..part.length / 256 {
                    let block = first.add(i * ty.block_bytes());
                    let (scale, minimum) = (half(block), half(block.add(2)));
                    let packed = block.add(4).cast::<[u8; 12]>().read_unaligned();
                    for j in 0..8 {
                        let (s, m) = if j < 4 {
                            (packed[j] & 63, packed[j + 4] & 63)
                        } else {
                            (
                                (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4),
                                (packed[j + 4] >> 4) | (packed[j] >> 6 << 4),
                            )
                        };
                        scales[i * 8 + j][lane] = scale * f32::from(s);
                        panel.minima[vector][i * 8 + j][lane] = minimum * f32::from(m);
                    }
                }
            }
            WeightType::Q6K => {
                for i in 0..part.length / 256 {
                    let block = first.add(i * ty.block_bytes());
                    let scale = half(block.add(208));
                    for j in 0..16 {
                        scales[i * 16 + j][lane] = scale * f32::from(*block.add(192 + j).cast::<i8>());
                    }
                }
            }
        }
    }
}

/// Unpacks a part of a panel. Lanes after the last row repeat it.
///
/// # Safety
/// `weights` is valid for the panel's rows.
#[inline(always)]
pub(super) unsafe fn panel(part: &Part, weights: *const u8, stride: usize, panel: &mut Panel) {
    let lanes = if part.count > LANES { 2 * LANES } else { LANES };
    let mut bytes = [0; 32];
    for lane in 0..lanes {
        // SAFETY: the caller's contract.
        unsafe {
            let row = weights.add(lane.min(part.count - 1) * stride);
            scales(part, row, lane, panel);
            for i in (0..part.length).step_by(32) {
                values(part.ty, row, part.from + i, &mut bytes);
                for (j, four) in bytes.chunks_exact(4).enumerate() {
                    panel.bytes[lane / LANES][i / 4 + j][lane % LANES * 4..][..4].copy_from_slice(four);
                }
            }
        }
    }
}
