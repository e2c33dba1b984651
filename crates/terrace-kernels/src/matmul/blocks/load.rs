//! Weights as unsigned bytes, with the scales of their blocks, with AVX-512.

use super::super::wide::{gather, transpose_words};
use super::LANES;
use crate::WeightType;
use std::arch::x86_64::*;

/// A layout of blocks.
pub(super) trait Weights {
    /// Bytes of a block.
    const BYTES: usize;

    /// A block's 32 values of each of 16 rows, four to a word; the block begins `at` bytes after the pointers.
    ///
    /// # Safety
    /// The rows have the block. The machine has AVX-512.
    unsafe fn words(rows: &[*const u8; LANES], at: usize, table: __m128i) -> [__m512i; 8];
}

/// Blocks of so many bytes, the last 16 of them nibbles, which a table has the values of or which are values.
pub(super) struct Nibbles<const BYTES: usize, const TABLE: bool>;
/// Blocks of nibbles that 4 bytes of fifth bits precede.
pub(super) struct Fives<const BYTES: usize>;
/// Blocks of a scale and 32 bytes.
pub(super) struct Bytes;

impl<const BYTES: usize, const TABLE: bool> Weights for Nibbles<BYTES, TABLE> {
    const BYTES: usize = BYTES;

    #[inline(always)]
    unsafe fn words(rows: &[*const u8; LANES], at: usize, table: __m128i) -> [__m512i; 8] {
        // SAFETY: the caller's contract.
        unsafe {
            let all = transpose_words(rows, at + BYTES - 16);
            let table = _mm512_broadcast_i32x4(table);
            let value = |nibbles| {
                let nibbles = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
                if TABLE { _mm512_shuffle_epi8(table, nibbles) } else { nibbles }
            };
            std::array::from_fn(
                |i| {
                    if i < 4 { value(all[i]) } else { value(_mm512_srli_epi16::<4>(all[i - 4])) }
                },
            )
        }
    }
}

impl Weights for Bytes {
    const BYTES: usize = 34;

    #[inline(always)]
    unsafe fn words(rows: &[*const u8; LANES], at: usize, _: __m128i) -> [__m512i; 8] {
        // SAFETY: the caller's contract.
        unsafe {
            let halves = [transpose_words(rows, at + 2), transpose_words(rows, at + 18)];
            std::array::from_fn(|i| _mm512_xor_si512(halves[i / 4][i % 4], _mm512_set1_epi8(-128)))
        }
    }
}

impl<const BYTES: usize> Weights for Fives<BYTES> {
    const BYTES: usize = BYTES;

    #[inline(always)]
    unsafe fn words(rows: &[*const u8; LANES], at: usize, table: __m128i) -> [__m512i; 8] {
        // SAFETY: the caller's contract.
        unsafe {
            let nibbles = Nibbles::<BYTES, false>::words(rows, at, table);
            let high = gather(rows, at + BYTES - 20);
            std::array::from_fn(|i| {
                let four = _mm512_srl_epi32(high, _mm_cvtsi32_si128(4 * i as i32));
                let four = _mm512_and_si512(four, _mm512_set1_epi32(15));
                // Bit `i` of four comes to bit 4 of byte `i`.
                let bits = _mm512_slli_epi32::<4>(_mm512_mullo_epi32(four, _mm512_set1_epi32(0x0020_4081)));
                _mm512_or_si512(nibbles[i], _mm512_and_si512(bits, _mm512_set1_epi8(16)))
            })
        }
    }
}

/// The scale, and the negative minimum of types that have one, of a block of each of 16 rows.
///
/// # Safety
/// `ty` has blocks of 32, which begin `at` bytes after the pointers; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn scale(ty: WeightType, rows: &[*const u8; LANES], at: usize) -> (__m512, __m512) {
    // SAFETY: the caller's contract: a block begins with its scale, and is larger than 4 bytes.
    unsafe {
        let words = gather(rows, at);
        let floats = |halves| _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
        let scale = if ty == WeightType::Mxfp4 { half_powers(words) } else { floats(words) };
        let minimum = if ty.has_minima() {
            _mm512_xor_ps(floats(_mm512_srli_epi32::<16>(words)), _mm512_set1_ps(-0.0))
        } else {
            _mm512_setzero_ps()
        };
        (scale, minimum)
    }
}

/// [`super::unpack::half_power`] of each number's lowest byte.
#[inline(always)]
unsafe fn half_powers(numbers: __m512i) -> __m512 {
    // SAFETY: the machine has AVX-512.
    unsafe {
        let exponents = _mm512_and_si512(numbers, _mm512_set1_epi32(0xff));
        let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(exponents, _mm512_set1_epi32(1)));
        let subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), exponents);
        let small = _mm512_cmplt_epi32_mask(exponents, _mm512_set1_epi32(2));
        _mm512_castsi512_ps(_mm512_mask_blend_epi32(small, normal, subnormal))
    }
}
