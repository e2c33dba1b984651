//! Dot products of few rows of activations with the K-quants, a row of weights at a time, with AVX-512 VNNI.
//!
//! A row is read as it lies in a file, without transposing, and a block's sum is an integer however its parts are added:
//! the bits are those of `few`, which has a row in each lane.

use super::super::RowGroup;
use super::super::columns::{Products, by_fours};
use super::super::lanes::prefetch;
use super::load_rows::{GROUP, Q2K, Q3K, Q4K, Q5K, Q6K, RowBlock};
use super::{BLOCK, Column, Layout, MINIMA, OFFSETS};
use crate::WeightType;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Returns true if dot products with so many rows of activations are at least as fast as `few` with weights in rows.
/// Measured: docs/benchmarks/kernels.md, "K-quants, a row at a time".
pub(in super::super) const fn are_faster(ty: WeightType, columns: usize) -> bool {
    match ty {
        WeightType::Q2K => columns <= 1,
        WeightType::Q3K | WeightType::Q4K | WeightType::Q5K | WeightType::Q6K => true,
        _ => false,
    }
}

/// Multiplies 16 rows, or what is left of them, which are not interleaved, with the columns.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has AVX-512 VNNI, and the type is a K-quant.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(in super::super) unsafe fn run(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe {
        match group.ty {
            WeightType::Q2K => by_fours(columns, &Dots::<Q2K> { group, ty: PhantomData }),
            WeightType::Q3K => by_fours(columns, &Dots::<Q3K> { group, ty: PhantomData }),
            WeightType::Q4K => by_fours(columns, &Dots::<Q4K> { group, ty: PhantomData }),
            WeightType::Q5K => by_fours(columns, &Dots::<Q5K> { group, ty: PhantomData }),
            _ => by_fours(columns, &Dots::<Q6K> { group, ty: PhantomData }),
        }
    }
}

/// Rows that are multiplied together: a block of each makes a group.
const ROWS: usize = GROUP;
/// Least number of bytes ahead of which weights are requested: four short rows are multiplied before memory answers.
const AHEAD: usize = 6144;

struct Dots<'a, T> {
    group: &'a RowGroup,
    ty: PhantomData<T>,
}

impl<T: RowBlock> Products for Dots<'_, T> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        for first in (0..self.group.count).step_by(ROWS) {
            // SAFETY: the caller's contract.
            unsafe { self.add_rows(first, columns) };
        }
    }
}

impl<T: RowBlock> Dots<'_, T> {
    /// Multiplies the four rows from `first` on, or what is left of them.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn add_rows<const N: usize>(&self, first: usize, columns: &[Column; N]) {
        let group = self.group;
        let layout = Layout::of(group.length);
        let ahead = AHEAD.max(ROWS * group.stride);
        let rows: [*const u8; ROWS] = group.rows(first);
        // SAFETY: the caller's contract.
        unsafe {
            let zero = _mm512_setzero_si512();
            let mut results = [_mm_setzero_ps(); N];
            for block in 0..group.length / BLOCK {
                let at = block * T::BYTES;
                prefetch::<_MM_HINT_T0>(rows[0].wrapping_add(ahead + ROWS * at), ROWS * T::BYTES);
                let blocks = rows.map(|row| row.wrapping_add(at));
                let scales = T::scales(&blocks);
                let mut totals = [[zero; ROWS]; N];
                let mut others = [[_mm256_setzero_si256(); ROWS]; N];
                for row in 0..ROWS {
                    let values = T::values(blocks[row]);
                    let subs = _mm512_zextsi256_si512(scales.subs[row]);
                    let factors = T::SUBS
                        .map(|of| _mm512_permutexvar_epi16(_mm512_loadu_si512((&raw const of).cast()), subs));
                    for (c, column) in columns.iter().enumerate() {
                        let inputs = T::activations(column.input.wrapping_add(block * BLOCK));
                        let mut total = zero;
                        for ((values, inputs), factors) in values.into_iter().zip(inputs).zip(factors) {
                            // Sums of four products fit in 16 bits, and their sign is multiplied by zero.
                            let dots = _mm512_dpbusd_epi32(zero, values, inputs);
                            total = _mm512_dpwssd_epi32(total, dots, factors);
                        }
                        let sums = T::sums(column.input.wrapping_add(layout.sums(T::SUMMED, block * BLOCK)));
                        let other = _mm256_madd_epi16(scales.pairs[row], sums);
                        if T::PAIRS == OFFSETS {
                            total = _mm512_add_epi32(total, _mm512_zextsi256_si512(other));
                        }
                        totals[c][row] = total;
                        others[c][row] = other;
                    }
                }
                for (c, column) in columns.iter().enumerate() {
                    let input =
                        column.input.wrapping_add(layout.scales).cast::<f32>().wrapping_add(block).read();
                    let input = _mm_set1_ps(input);
                    let total = _mm_cvtepi32_ps(sums_of(totals[c]));
                    results[c] = _mm_fmadd_ps(total, _mm_mul_ps(scales.scale, input), results[c]);
                    if T::PAIRS == MINIMA {
                        let minima = _mm_cvtepi32_ps(sums_of_halves(others[c]));
                        results[c] = _mm_fnmadd_ps(minima, _mm_mul_ps(scales.minimum, input), results[c]);
                    }
                }
            }
            let mask = (1u8 << (group.count - first).min(ROWS)) - 1;
            for (column, results) in columns.iter().zip(results) {
                _mm_mask_storeu_ps(column.out.wrapping_add(group.first + first), mask, results);
            }
        }
    }
}

/// The sum of each vector's numbers.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn sums_of([a, b, c, d]: [__m512i; ROWS]) -> __m128i {
    // SAFETY: the caller's contract.
    unsafe {
        let two = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (low, high) = (two(a, b), two(c, d));
        let four = _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
        let halves = _mm256_add_epi32(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64::<1>(four));
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
    }
}

/// The same of vectors of 8 numbers.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn sums_of_halves([a, b, c, d]: [__m256i; ROWS]) -> __m128i {
    // SAFETY: the caller's contract.
    unsafe {
        let two = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (low, high) = (two(a, b), two(c, d));
        let four = _mm256_add_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
        _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four))
    }
}
