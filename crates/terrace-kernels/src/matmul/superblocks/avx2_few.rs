//! Products of few rows of activations with K-quants and IQ4_XS, a row of weights at a time, with AVX2.
//!
//! A block's sum is an integer however its parts are added: the bits are those of panels.

use super::super::RowGroup;
use super::super::columns::{Products, by_fours};
use super::super::lanes::{ROWS_AHEAD, request_ahead};
use super::super::narrow;
use super::dots_k::sums_of_halves;
use super::narrow_scales::{floats_of, scales};
use super::{BLOCK, Column, Layout, MINIMA, OFFSETS, form};
use crate::WeightType;
use crate::blocks::IQ4_NL_BYTES;
use std::arch::x86_64::*;

/// Rows that are multiplied together.
const ROWS: usize = 4;

/// Multiplies 16 rows, or what is left of them, with the columns.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has AVX2, FMA and F16C, and the type has superblocks and no grid.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) unsafe fn run(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe {
        match group.ty {
            WeightType::Q2K => by_fours(columns, &Dots::<{ WeightType::Q2K as usize }> { group }),
            WeightType::Q3K => by_fours(columns, &Dots::<{ WeightType::Q3K as usize }> { group }),
            WeightType::Q4K => by_fours(columns, &Dots::<{ WeightType::Q4K as usize }> { group }),
            WeightType::Q5K => by_fours(columns, &Dots::<{ WeightType::Q5K as usize }> { group }),
            WeightType::Q6K => by_fours(columns, &Dots::<{ WeightType::Q6K as usize }> { group }),
            _ => by_fours(columns, &Dots::<{ WeightType::Iq4Xs as usize }> { group }),
        }
    }
}

/// Places of the scales of 32 values, number `i` of four, in 16 bytes: of one sub-block, or of two.
const fn factors(sub: usize) -> [[u8; 32]; 4] {
    let mut of = [[0; 32]; 4];
    let mut i = 0;
    while i < 4 * 32 {
        let (number, byte) = (i / 32, i % 32);
        let scale = if sub == 16 { 2 * number + byte / 16 } else { number };
        of[number][byte] = (2 * scale + byte % 2) as u8;
        i += 1;
    }
    of
}

static FACTORS_OF_16: [[u8; 32]; 4] = factors(16);
static FACTORS_OF_32: [[u8; 32]; 4] = factors(32);

struct Dots<'a, const TY: usize> {
    group: &'a RowGroup,
}

impl<const TY: usize> Dots<'_, TY> {
    const TY: WeightType = WeightType::ALL[TY];
    const SUB: usize = form(Self::TY).0;
    /// Signed bytes, which need no correction.
    const WIDE: bool = Self::TY.largest() > 64;
    const PAIRS: u8 = form(Self::TY).1;
}

impl<const TY: usize> Products for Dots<'_, TY> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let group = self.group;
        let layout = Layout::of(group.length);
        let ahead = ROWS_AHEAD.max(ROWS * group.stride);
        let bytes = Self::TY.block_bytes();
        for first in (0..group.count).step_by(ROWS) {
            let rows: [*const u8; ROWS] = group.rows(first);
            // SAFETY: the caller's contract.
            unsafe {
                let mut results = [_mm_setzero_ps(); N];
                for block in 0..group.length / BLOCK {
                    let at = block * bytes;
                    request_ahead(rows[0].wrapping_add(ROWS * at), ahead, ROWS * bytes);
                    let blocks = rows.map(|row| row.wrapping_add(at));
                    let mut totals = [[_mm256_setzero_si256(); ROWS]; N];
                    let mut others = [[_mm256_setzero_si256(); ROWS]; N];
                    for row in 0..ROWS {
                        let sums = Self::sums(blocks[row], columns, &layout, block);
                        for (c, (total, other)) in sums.into_iter().enumerate() {
                            totals[c][row] = total;
                            others[c][row] = other;
                        }
                    }
                    let [scale, minimum] = floats_of(Self::TY, &blocks);
                    for (c, column) in columns.iter().enumerate() {
                        let input = _mm_set1_ps(layout.scale(column.input, block));
                        let total = _mm_cvtepi32_ps(sums_of_halves(totals[c]));
                        results[c] = _mm_fmadd_ps(total, _mm_mul_ps(scale, input), results[c]);
                        if Self::PAIRS == MINIMA {
                            let minima = _mm_cvtepi32_ps(sums_of_halves(others[c]));
                            results[c] = _mm_fnmadd_ps(minima, _mm_mul_ps(minimum, input), results[c]);
                        }
                    }
                }
                let lanes =
                    _mm_cmpgt_epi32(_mm_set1_epi32((group.count - first) as i32), _mm_setr_epi32(0, 1, 2, 3));
                for (column, results) in columns.iter().zip(results) {
                    _mm_maskstore_ps(column.out.wrapping_add(group.first + first), lanes, results);
                }
            }
        }
    }
}

impl<const TY: usize> Dots<'_, TY> {
    /// The sums of products of a row's block with each column, and what minima are multiplied with.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn sums<const N: usize>(
        block: *const u8,
        columns: &[Column; N],
        layout: &Layout,
        number: usize,
    ) -> [(__m256i, __m256i); N] {
        // SAFETY: the caller's contract.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(IQ4_NL_BYTES.as_ptr().cast()));
            let scales = scales(Self::TY, block);
            let places = if Self::SUB == 16 { &FACTORS_OF_16 } else { &FACTORS_OF_32 };
            let mut totals = [_mm256_setzero_si256(); N];
            for half in 0..2 {
                for (i, places) in places.iter().enumerate() {
                    let at = half * 128 + i * 32;
                    let mut values = narrow::values(Self::TY, block, at, table);
                    let factors = _mm256_loadu_si256(places.as_ptr().cast());
                    let factors = _mm256_shuffle_epi8(scales.subs[half], factors);
                    if Self::WIDE {
                        values = _mm256_xor_si256(values, _mm256_set1_epi8(-128));
                    }
                    for (column, total) in columns.iter().zip(&mut totals) {
                        let input = column.input.wrapping_add(number * BLOCK + at);
                        let input = _mm256_loadu_si256(input.cast());
                        // Sums of two products of bytes fit in 16 bits.
                        let pairs = if Self::WIDE {
                            narrow::signed_pairs(values, input)
                        } else {
                            _mm256_maddubs_epi16(values, input)
                        };
                        *total = _mm256_add_epi32(*total, _mm256_madd_epi16(pairs, factors));
                    }
                }
            }
            let mut sums = totals.map(|total| (total, _mm256_setzero_si256()));
            if !Self::WIDE {
                for (column, (total, other)) in columns.iter().zip(&mut sums) {
                    let at = column.input.wrapping_add(layout.sums(Self::SUB, number * BLOCK));
                    let sums = if Self::SUB == 16 {
                        _mm256_loadu_si256(at.cast())
                    } else {
                        _mm256_zextsi128_si256(_mm_loadu_si128(at.cast()))
                    };
                    *other = _mm256_madd_epi16(scales.pairs, sums);
                    if Self::PAIRS == OFFSETS {
                        *total = _mm256_add_epi32(*total, *other);
                    }
                }
            }
            sums
        }
    }
}
