//! Products with AVX2: scales of sub-blocks are multiplied with where pairs of products are added, which costs nothing.

use super::super::columns::{Products, by_fours};
use super::super::narrow::{self, HALF};
use super::{BLOCK, Column, LANES, Layout, MINIMA, NO_PAIRS, OFFSETS, Panel, PanelRange, unpack};
use crate::WeightType;
use crate::blocks::IQ4_NL_BYTES;
use std::arch::x86_64::*;

/// Unpacked bytes up to 64, which are positive.
const NARROW: u8 = 0;
/// Bytes whose magnitudes are up to 64 once the excess is taken off.
const SMALL: u8 = 1;
/// Any bytes.
const WIDE: u8 = 2;

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`]; the machine has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        // Twice 16 bits, for pairs of products.
        narrow::bytes(part, weights, stride, IQ4_NL_BYTES, &mut panel.bytes);
        unpack::panel_scales(part, weights, stride, panel, |sub| {
            i32::from(sub) << 16 | i32::from(sub) & 0xffff
        });
        match part.ty {
            WeightType::Q2K => all_columns::<16, MINIMA, NARROW>(part, columns, panel),
            WeightType::Q3K | WeightType::Q6K => all_columns::<16, OFFSETS, NARROW>(part, columns, panel),
            WeightType::Q4K | WeightType::Q5K => all_columns::<32, MINIMA, NARROW>(part, columns, panel),
            WeightType::Iq2Xs | WeightType::Iq2S | WeightType::Iq1M => {
                all_columns::<16, NO_PAIRS, SMALL>(part, columns, panel);
            }
            ty if ty.has_grid() => all_columns::<32, NO_PAIRS, SMALL>(part, columns, panel),
            _ => all_columns::<32, NO_PAIRS, WIDE>(part, columns, panel),
        }
    }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn all_columns<const SUB: usize, const PAIRS: u8, const BYTES: u8>(
    part: &PanelRange,
    columns: &[Column],
    panel: &Panel,
) {
    for first in (0..part.count).step_by(HALF) {
        // SAFETY: the caller's contract.
        unsafe { by_fours(columns, &Sums::<SUB, PAIRS, BYTES> { part, panel, first }) };
    }
}

/// Products of 8 rows from `first` on.
struct Sums<'a, const SUB: usize, const PAIRS: u8, const BYTES: u8> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
    first: usize,
}

impl<const SUB: usize, const PAIRS: u8, const BYTES: u8> Products for Sums<'_, SUB, PAIRS, BYTES> {
    #[inline(always)]
    fn request(&self) {
        self.part.request();
    }

    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel, first } = *self;
        let (vector, lane) = (first / LANES, first % LANES);
        let count = HALF.min(part.count - first);
        let layout = Layout::of(part.row);
        // SAFETY: the caller's contract; rows after the last are neither loaded nor stored.
        unsafe {
            let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let shown = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), numbers);
            let mut results = [_mm256_setzero_ps(); N];
            let mut inputs = [std::ptr::null(); N];
            for (i, column) in columns.iter().enumerate() {
                inputs[i] = column.input.add(part.from);
                if part.from > 0 {
                    results[i] = _mm256_maskload_ps(column.out.add(part.first + first), shown);
                }
            }
            // Unrolled, the inner loop would load everything first, and spill it.
            let end_of_sub = std::hint::black_box(SUB);
            for block in 0..part.length / BLOCK {
                let at = part.from + block * BLOCK;
                let scales = &panel.blocks[vector][block];
                let lanes = |of: *const i32| _mm256_loadu_si256(of.add(lane).cast());
                let mut totals = [_mm256_setzero_si256(); N];
                let mut others = [_mm256_setzero_si256(); N];
                if PAIRS != NO_PAIRS {
                    let at = layout.sums(SUB, at);
                    for (pair, weights) in scales.pairs[..BLOCK / SUB / 2].iter().enumerate() {
                        let weights = lanes(weights.as_ptr().cast());
                        for i in 0..N {
                            let sums = columns[i].input.add(at).cast::<i32>().add(pair).read_unaligned();
                            let product = _mm256_madd_epi16(weights, _mm256_set1_epi32(sums));
                            others[i] = _mm256_add_epi32(others[i], product);
                        }
                    }
                    if PAIRS == OFFSETS {
                        totals = others;
                    }
                }
                let bytes = panel.bytes[vector].as_ptr().cast::<u8>().add(block * BLOCK * LANES + lane * 4);
                for (sub, scale) in scales.subs[..BLOCK / SUB].iter().enumerate() {
                    let scale = lanes(scale.as_ptr());
                    let (mut at, end) = (sub * SUB, sub * SUB + end_of_sub);
                    while at < end {
                        let mut a = _mm256_loadu_si256(bytes.add(at * LANES).cast());
                        let mut b = _mm256_loadu_si256(bytes.add(at * LANES + 4 * LANES).cast());
                        if BYTES != NARROW {
                            a = _mm256_xor_si256(a, _mm256_set1_epi8(-128));
                            b = _mm256_xor_si256(b, _mm256_set1_epi8(-128));
                        }
                        for (input, total) in inputs.iter().zip(&mut totals) {
                            let input = input.add(block * BLOCK + at).cast::<i32>();
                            let x = _mm256_set1_epi32(input.read_unaligned());
                            let y = _mm256_set1_epi32(input.add(1).read_unaligned());
                            let (x, y) = if BYTES == NARROW {
                                (_mm256_maddubs_epi16(a, x), _mm256_maddubs_epi16(b, y))
                            } else {
                                (narrow::signed_pairs(a, x), narrow::signed_pairs(b, y))
                            };
                            // Sums of two products of bytes fit in 16 bits, and of bytes up to 64, two of these sums.
                            let scaled = if BYTES == WIDE {
                                _mm256_add_epi32(_mm256_madd_epi16(x, scale), _mm256_madd_epi16(y, scale))
                            } else {
                                _mm256_madd_epi16(_mm256_add_epi16(x, y), scale)
                            };
                            *total = _mm256_add_epi32(*total, scaled);
                        }
                        at += 8;
                    }
                }
                let scale = _mm256_loadu_ps(scales.scale.as_ptr().add(lane));
                let minimum = _mm256_loadu_ps(scales.minimum.as_ptr().add(lane));
                for i in 0..N {
                    let input = columns[i].input.add(layout.scales).cast::<f32>().add(at / BLOCK).read();
                    let input = _mm256_set1_ps(input);
                    let total = _mm256_cvtepi32_ps(totals[i]);
                    results[i] = _mm256_fmadd_ps(total, _mm256_mul_ps(scale, input), results[i]);
                    if PAIRS == MINIMA {
                        let other = _mm256_cvtepi32_ps(others[i]);
                        results[i] = _mm256_fnmadd_ps(other, _mm256_mul_ps(minimum, input), results[i]);
                    }
                }
            }
            for (result, column) in results.into_iter().zip(columns) {
                _mm256_maskstore_ps(column.out.add(part.first + first), shown, result);
            }
        }
    }
}
