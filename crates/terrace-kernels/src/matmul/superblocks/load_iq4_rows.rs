//! Blocks of single rows of IQ4_XS as bytes, two rows at a time, with AVX-512.

use super::dots_grid::{Input, PairDots, Row, sums_of_twos};
use super::{BLOCK, Layout};
use crate::blocks::IQ4_NL_BYTES;
use crate::simd::array_of;
use std::arch::x86_64::*;

pub(super) struct Iq4Xs;

/// Bits that words are shifted by: `first + i * next` for those of sub-block `i`. Each 128 bits have two words of a
/// sub-block, and two of that four after it.
#[inline(always)]
unsafe fn places(first: i32, next: i32) -> __m512i {
    let at = |quarter: i32| [first + quarter * next, first + (quarter + 4) * next];
    let [[a, b], [c, d], [e, f], [g, h]] = [at(0), at(1), at(2), at(3)];
    // SAFETY: the machine has AVX-512.
    unsafe { _mm512_setr_epi32(a, a, b, b, c, c, d, d, e, e, f, f, g, g, h, h) }
}

/// A row's scales.
///
/// # Safety
/// The block is there; the machine has AVX-512.
#[inline(always)]
unsafe fn scales(block: *const u8) -> __m512i {
    // SAFETY: the caller's contract: a float, 8 pairs of upper bits, and 8 nibbles.
    unsafe {
        let word = |at: usize| _mm512_set1_epi32(block.wrapping_add(at).cast::<i32>().read_unaligned());
        let low = _mm512_srlv_epi32(word(4), places(0, 4));
        let high = _mm512_srlv_epi32(word(0), places(12, 2));
        // The low four bits, and the two above these.
        let both = _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi32(15), low, high);
        _mm512_sub_epi32(_mm512_and_si512(both, _mm512_set1_epi32(63)), _mm512_set1_epi32(32))
    }
}

impl PairDots for Iq4Xs {
    const BYTES: usize = 136;
    const SUB: usize = 32;

    /// The first halves of four sub-blocks, their second halves, and the same of the other four.
    #[inline(always)]
    unsafe fn unpack([a, b]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(IQ4_NL_BYTES.as_ptr().cast()));
            let of = |nibbles| _mm512_shuffle_epi8(table, _mm512_and_si512(nibbles, _mm512_set1_epi8(15)));
            array_of!(2, i => {
                let block = [a, b][i];
                let half = |at: usize| _mm512_loadu_si512(block.wrapping_add(at).cast());
                let (a, b) = (half(8), half(72));
                let values = [of(a), of(_mm512_srli_epi16::<4>(a)), of(b), of(_mm512_srli_epi16::<4>(b))];
                Row { values, scales: scales(block) }
            })
        }
    }

    #[inline(always)]
    unsafe fn input(row: *const u8, layout: &Layout, block: usize) -> Input {
        // SAFETY: the caller's contract.
        unsafe {
            let load = |i: usize| _mm512_loadu_si512(row.wrapping_add(block * BLOCK + 64 * i).cast());
            let [a, b, c, d] = [load(0), load(1), load(2), load(3)];
            let values = [
                _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b),
                _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b),
                _mm512_shuffle_i64x2::<0b10_00_10_00>(c, d),
                _mm512_shuffle_i64x2::<0b11_01_11_01>(c, d),
            ];
            // Each sum once, though a sub-block has two words.
            let sums = _mm_loadu_si128(row.wrapping_add(layout.sums(32, block * BLOCK)).cast());
            let sums = _mm512_castsi256_si512(_mm256_cvtepi16_epi32(sums));
            let order = _mm512_setr_epi32(0, 0, 4, 0, 1, 0, 5, 0, 2, 0, 6, 0, 3, 0, 7, 0);
            let sums = _mm512_maskz_permutexvar_epi32(0x5555, order, sums);
            Input { values, excess: _mm512_slli_epi32::<7>(sums) }
        }
    }

    #[inline(always)]
    unsafe fn sums(row: &Row, input: &Input) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let dot = |i: usize| {
                let first = _mm512_dpbusd_epi32(_mm512_setzero_si512(), row.values[i], input.values[i]);
                _mm512_dpbusd_epi32(first, row.values[i + 1], input.values[i + 1])
            };
            // Two words of each of the first four sub-blocks, beside those of the sub-block four after it.
            let sums = _mm512_sub_epi32(sums_of_twos(dot(0), dot(2)), input.excess);
            _mm512_mullo_epi32(sums, row.scales)
        }
    }
}
