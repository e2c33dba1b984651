//! Products of K-quants' rows, four at a time, with AVX-512 VNNI.

use super::dots::{ROWS, RowDots};
use super::load_rows::RowBlock;
use super::{BLOCK, Column, Layout, MINIMA, OFFSETS};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// A K-quant.
pub(super) struct KQuant<T>(PhantomData<T>);

impl<T: RowBlock> RowDots for KQuant<T> {
    const BYTES: usize = T::BYTES;

    #[inline(always)]
    unsafe fn add<const N: usize>(
        blocks: &[*const u8; ROWS],
        (block, layout): (usize, &Layout),
        columns: &[Column; N],
        results: &mut [__m128; N],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            let zero = _mm512_setzero_si512();
            let scales = T::scales(blocks);
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
                let input = _mm_set1_ps(layout.scale(column.input, block));
                let total = _mm_cvtepi32_ps(sums_of(totals[c]));
                results[c] = _mm_fmadd_ps(total, _mm_mul_ps(scales.scale, input), results[c]);
                if T::PAIRS == MINIMA {
                    let minima = _mm_cvtepi32_ps(sums_of_halves(others[c]));
                    results[c] = _mm_fnmadd_ps(minima, _mm_mul_ps(scales.minimum, input), results[c]);
                }
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
pub(super) unsafe fn sums_of_halves([a, b, c, d]: [__m256i; ROWS]) -> __m128i {
    // SAFETY: the caller's contract.
    unsafe {
        let two = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (low, high) = (two(a, b), two(c, d));
        let four = _mm256_add_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
        _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four))
    }
}
