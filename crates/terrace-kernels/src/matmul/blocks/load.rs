//! Weights as unsigned bytes, with the scales of their blocks, with AVX-512.

use super::super::lanes::LaneBlocks;
use crate::WeightType;
use crate::simd::array_of;
use std::arch::x86_64::*;

/// A layout of blocks.
pub(super) trait Weights {
    /// Bytes of a block.
    const BYTES: usize;

    /// The blocks' 32 values, four to a word.
    ///
    /// # Safety
    /// The blocks are there. The machine has AVX-512.
    unsafe fn words(blocks: impl LaneBlocks, table: __m128i) -> [__m512i; 8];
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
    unsafe fn words(blocks: impl LaneBlocks, table: __m128i) -> [__m512i; 8] {
        // SAFETY: the caller's contract.
        unsafe {
            let all = blocks.words(BYTES - 16);
            let table = _mm512_broadcast_i32x4(table);
            let value = |nibbles| {
                let nibbles = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
                if TABLE { _mm512_shuffle_epi8(table, nibbles) } else { nibbles }
            };
            array_of!(8, i => {
                if i < 4 { value(all[i]) } else { value(_mm512_srli_epi16::<4>(all[i - 4])) }
            })
        }
    }
}

impl Weights for Bytes {
    const BYTES: usize = 34;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, _: __m128i) -> [__m512i; 8] {
        // SAFETY: the caller's contract.
        unsafe {
            let halves = [blocks.words(2), blocks.words(18)];
            array_of!(8, i => _mm512_xor_si512(halves[i / 4][i % 4], _mm512_set1_epi8(-128)))
        }
    }
}

impl<const BYTES: usize> Weights for Fives<BYTES> {
    const BYTES: usize = BYTES;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, table: __m128i) -> [__m512i; 8] {
        // SAFETY: the caller's contract.
        unsafe {
            let nibbles = Nibbles::<BYTES, false>::words(blocks, table);
            let high = blocks.word(BYTES - 20);
            array_of!(8, i => {
                let four = _mm512_srl_epi32(high, _mm_cvtsi32_si128(4 * i as i32));
                let four = _mm512_and_si512(four, _mm512_set1_epi32(15));
                // Bit `i` of four comes to bit 4 of byte `i`.
                let bits = _mm512_slli_epi32::<4>(_mm512_mullo_epi32(four, _mm512_set1_epi32(0x0020_4081)));
                _mm512_or_si512(nibbles[i], _mm512_and_si512(bits, _mm512_set1_epi8(16)))
            })
        }
    }
}

/// The scale, and the negative minimum of types that have one, of each block.
///
/// # Safety
/// `ty` has blocks of 32, which are there; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn scale(ty: WeightType, blocks: impl LaneBlocks) -> (__m512, __m512) {
    // SAFETY: the caller's contract: a block begins with its scale, and is larger than 4 bytes.
    unsafe {
        if ty == WeightType::Mxfp4 {
            return (half_powers(blocks.first_byte()), _mm512_setzero_ps());
        }
        if !ty.has_minima() {
            return (_mm512_cvtph_ps(blocks.first_half()), _mm512_setzero_ps());
        }
        let words = blocks.word(0);
        let floats = |halves| _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
        let minimum = floats(_mm512_srli_epi32::<16>(words));
        (floats(words), _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0)))
    }
}

/// [`super::unpack::half_power`] of each number, which are below 256.
#[inline(always)]
unsafe fn half_powers(exponents: __m512i) -> __m512 {
    // SAFETY: the machine has AVX-512.
    unsafe {
        let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(exponents, _mm512_set1_epi32(1)));
        let subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), exponents);
        let small = _mm512_cmplt_epi32_mask(exponents, _mm512_set1_epi32(2));
        _mm512_castsi512_ps(_mm512_mask_blend_epi32(small, normal, subnormal))
    }
}
