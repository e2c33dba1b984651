//! Products of few rows of activations, eight rows of weights at a time, with AVX2: weights go from memory to products
//! without a panel.

use super::super::RowGroup;
use super::super::columns::{Products, by_fours};
use super::super::lanes::{ROWS_AHEAD, request_ahead};
use super::super::narrow::{self, HALF};
use super::avx2::scales_of;
use super::{BLOCK, Column, Layout, unpack};
use crate::WeightType;
use std::arch::x86_64::*;

/// Multiplies 16 rows, or what is left of them, with the columns.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has AVX2, FMA and F16C, and the type has blocks of 32.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) unsafe fn run(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe {
        match group.ty {
            WeightType::Q4_0 => by_fours(columns, &Dots::<{ WeightType::Q4_0 as usize }> { group }),
            WeightType::Q4_1 => by_fours(columns, &Dots::<{ WeightType::Q4_1 as usize }> { group }),
            WeightType::Q5_0 => by_fours(columns, &Dots::<{ WeightType::Q5_0 as usize }> { group }),
            WeightType::Q5_1 => by_fours(columns, &Dots::<{ WeightType::Q5_1 as usize }> { group }),
            WeightType::Iq4Nl => by_fours(columns, &Dots::<{ WeightType::Iq4Nl as usize }> { group }),
            WeightType::Mxfp4 => by_fours(columns, &Dots::<{ WeightType::Mxfp4 as usize }> { group }),
            _ => by_fours(columns, &Dots::<{ WeightType::Q8_0 as usize }> { group }),
        }
    }
}

struct Dots<'a, const TY: usize> {
    group: &'a RowGroup,
}

impl<const TY: usize> Dots<'_, TY> {
    const TY: WeightType = WeightType::ALL[TY];
    /// Two sums of two products of bytes fit in 16 bits.
    const NARROW: bool = Self::TY.largest() <= 64;
}

impl<const TY: usize> Products for Dots<'_, TY> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let group = self.group;
        let layout = Layout::of(group.length);
        let (ty, bytes) = (Self::TY, Self::TY.block_bytes());
        // Wide bytes become signed ones, which need no correction.
        let offset = if Self::NARROW { -ty.offset() } else { 0 };
        let ahead = ROWS_AHEAD.max(HALF * group.stride);
        for first in (0..group.count).step_by(HALF) {
            let rows: [*const u8; HALF] = group.rows(first);
            // SAFETY: the caller's contract.
            unsafe {
                let table = unpack::table(ty);
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                let mut results = [_mm256_setzero_ps(); N];
                for block in 0..group.length / BLOCK {
                    let at = block * bytes;
                    request_ahead(rows[0].wrapping_add(HALF * at), ahead, HALF * bytes);
                    let blocks = rows.map(|row| row.wrapping_add(at));
                    let mut dots = [[_mm256_setzero_si256(); HALF]; N];
                    for (row, at) in blocks.into_iter().enumerate() {
                        let values = narrow::values(ty, at, 0, table);
                        for (column, dots) in columns.iter().zip(&mut dots) {
                            let input = column.input.wrapping_add(block * BLOCK);
                            dots[row] = Self::dot(values, _mm256_loadu_si256(input.cast()));
                        }
                    }
                    let (scale, minimum) = scales_of(ty, &blocks);
                    for (c, column) in columns.iter().enumerate() {
                        let sum = column.input.add(layout.sums).cast::<i32>().add(block).read();
                        let input = column.input.add(layout.scales).cast::<f32>().add(block).read();
                        let offset = _mm256_set1_epi32(offset.wrapping_mul(sum));
                        let dot = _mm256_cvtepi32_ps(_mm256_add_epi32(sums_of(dots[c]), offset));
                        let factor = _mm256_mul_ps(scale, _mm256_set1_ps(input));
                        results[c] = _mm256_fmadd_ps(dot, factor, results[c]);
                        if ty.has_minima() {
                            let sum = _mm256_set1_ps(input * sum as f32);
                            results[c] = _mm256_fnmadd_ps(minimum, sum, results[c]);
                        }
                    }
                }
                let lanes = _mm256_cmpgt_epi32(
                    _mm256_set1_epi32((group.count - first) as i32),
                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                );
                for (column, results) in columns.iter().zip(results) {
                    _mm256_maskstore_ps(column.out.wrapping_add(group.first + first), lanes, results);
                }
            }
        }
    }
}

impl<const TY: usize> Dots<'_, TY> {
    /// Sums of four products each.
    ///
    /// # Safety
    /// The machine has AVX2.
    #[inline(always)]
    unsafe fn dot(values: __m256i, input: __m256i) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe {
            let pairs = if Self::NARROW {
                _mm256_maddubs_epi16(values, input)
            } else {
                narrow::signed_pairs(_mm256_xor_si256(values, _mm256_set1_epi8(-128)), input)
            };
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        }
    }
}

/// The sum of each vector's numbers.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn sums_of(of: [__m256i; HALF]) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let [a, b, c, d, e, f, g, h] = of;
        let four = |a, b, c, d| _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        let (low, high) = (four(a, b, c, d), four(e, f, g, h));
        let first = _mm256_permute2x128_si256::<0x20>(low, high);
        _mm256_add_epi32(first, _mm256_permute2x128_si256::<0x31>(low, high))
    }
}
