//! Products of rows of types with grids, and of IQ4_XS, with AVX-512 VNNI.
//!
//! Activations are taken in an order of their own ([`Layout::quads`]): a vector has one of each four values, so that it
//! meets bits of the same place in 64 entries of a grid. A word's sum belongs to 16 values, whichever vector they are in.

use super::dots::{ROWS, RowDots};
use super::load_rows::floats;
use super::{BLOCK, Column, Layout};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// A block of a row.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// Unsigned bytes.
    pub values: [__m512i; 4],
    /// The factor of each word of the sums.
    pub scales: __m512i,
}

/// A block of activations.
#[derive(Clone, Copy)]
pub(super) struct Input {
    pub values: [__m512i; 4],
    /// The excess of each word of the sums.
    pub excess: __m512i,
}

/// Types of which two rows are unpacked together.
///
/// # Safety
/// Of all its functions, beside what each says: the machine has AVX-512 VNNI, and what the type needs beyond that.
pub(super) trait PairDots {
    /// Bytes of a block.
    const BYTES: usize;
    /// The factor of the float at the start of a block.
    const TIMES: f32 = 1.0;
    /// Values of a sub-block: 16 or 32.
    const SUB: usize;
    /// Excess of unpacked bytes.
    const EXCESS: i32 = 128;

    /// Unpacks blocks of two rows.
    ///
    /// # Safety
    /// The blocks are there.
    unsafe fn unpack(blocks: [*const u8; 2]) -> [Row; 2];

    /// The floats of the blocks of four rows.
    ///
    /// # Safety
    /// The blocks are there.
    #[inline(always)]
    unsafe fn scale(blocks: &[*const u8; ROWS]) -> __m128 {
        // SAFETY: the caller's contract.
        unsafe { _mm_mul_ps(floats(blocks, 0), _mm_set1_ps(Self::TIMES)) }
    }

    /// Block number `block` of a row of activations.
    ///
    /// # Safety
    /// The row is there.
    #[inline(always)]
    unsafe fn input(row: *const u8, layout: &Layout, block: usize) -> Input {
        // SAFETY: the caller's contract.
        unsafe {
            let at = row.wrapping_add(layout.quads + block * BLOCK);
            let load = |i: usize| _mm512_loadu_si512(at.wrapping_add(64 * i).cast());
            let sums = row.wrapping_add(layout.sums(Self::SUB, block * BLOCK));
            let sums = if Self::SUB == 16 {
                _mm512_cvtepi16_epi32(_mm256_loadu_si256(sums.cast()))
            } else {
                // Of the two words of a sub-block, the first has the excess of both.
                _mm512_cvtepu32_epi64(_mm256_cvtepi16_epi32(_mm_loadu_si128(sums.cast())))
            };
            let excess = _mm512_mullo_epi32(sums, _mm512_set1_epi32(Self::EXCESS));
            Input { values: [load(0), load(1), load(2), load(3)], excess }
        }
    }

    /// The parts of a block's sum.
    ///
    /// # Safety
    /// None but the machine's instructions.
    #[inline(always)]
    unsafe fn sums(row: &Row, input: &Input) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let mut dots = _mm512_setzero_si512();
            for (values, inputs) in row.values.into_iter().zip(input.values) {
                dots = _mm512_dpbusd_epi32(dots, values, inputs);
            }
            _mm512_mullo_epi32(_mm512_sub_epi32(dots, input.excess), row.scales)
        }
    }
}

/// A type that is multiplied by pairs of rows.
pub(super) struct Pairs<T>(PhantomData<T>);

impl<T: PairDots> RowDots for Pairs<T> {
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
            let mut inputs = [Input { values: [zero; 4], excess: zero }; N];
            for (input, column) in inputs.iter_mut().zip(columns) {
                *input = T::input(column.input, layout, block);
            }
            let [a, b] = T::unpack([blocks[0], blocks[1]]);
            let mut firsts = [zero; N];
            for (sums, input) in firsts.iter_mut().zip(&inputs) {
                *sums = sums_of_twos(T::sums(&a, input), T::sums(&b, input));
            }
            let [c, d] = T::unpack([blocks[2], blocks[3]]);
            let scale = T::scale(blocks);
            for (i, (column, results)) in columns.iter().zip(results).enumerate() {
                let seconds = sums_of_twos(T::sums(&c, &inputs[i]), T::sums(&d, &inputs[i]));
                let total = of_quarters(sums_of_twos(firsts[i], seconds));
                let input = _mm_set1_ps(layout.scale(column.input, block));
                *results = _mm_fmadd_ps(_mm_cvtepi32_ps(total), _mm_mul_ps(scale, input), *results);
            }
        }
    }
}

/// Sums of numbers 0 and 1, and of 2 and 3, of each quarter of the first vector, then of the second.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn sums_of_twos(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let [even, odd] = evens_and_odds(a, b);
        _mm512_add_epi32(even, odd)
    }
}

/// Numbers 0 and 2 of each quarter of the first vector, then of the second, and the same of numbers 1 and 3.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn evens_and_odds(a: __m512i, b: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let (a, b) = (_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
        [
            _mm512_castps_si512(_mm512_shuffle_ps::<0b10_00_10_00>(a, b)),
            _mm512_castps_si512(_mm512_shuffle_ps::<0b11_01_11_01>(a, b)),
        ]
    }
}

/// The sum of the quarters.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn of_quarters(all: __m512i) -> __m128i {
    // SAFETY: the caller's contract.
    unsafe {
        let halves = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
    }
}
