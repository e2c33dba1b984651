//! Weights as unsigned bytes, with the scales of their blocks, with AVX-512.

use super::{BLOCK, LANES, Panel, PanelRange};
use crate::WeightType;
use std::arch::x86_64::*;

/// A layout of weights.
pub(super) trait Weights {
    /// 64 values from `at` on, the number of a value of the row; after the row's end, anything.
    ///
    /// # Safety
    /// `row` is valid for the row, and 32 values at least are left. The machine has AVX-512.
    unsafe fn load(row: *const u8, at: usize, whole: bool, table: __m128i) -> __m512i;
}

/// Blocks of so many bytes, the last 16 of them nibbles.
pub(super) struct Nibbles<const BYTES: usize>;
/// The same; 4 bytes of fifth bits precede them.
pub(super) struct Fives<const BYTES: usize>;
/// Blocks of a scale and 32 bytes.
pub(super) struct Bytes;

impl<const BYTES: usize> Weights for Nibbles<BYTES> {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, whole: bool, table: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let first = row.add(at / 32 * BYTES + BYTES - 16);
            let second = if whole { first.add(BYTES) } else { first };
            let both = _mm256_set_m128i(_mm_loadu_si128(second.cast()), _mm_loadu_si128(first.cast()));
            let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(both), _mm256_srli_epi16::<4>(both));
            // Low nibbles of both, then high ones; wanted is one block after the other.
            let both = _mm512_shuffle_i32x4::<0b11_01_10_00>(both, both);
            let nibbles = _mm512_and_si512(both, _mm512_set1_epi8(15));
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles)
        }
    }
}

impl Weights for Bytes {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, whole: bool, _: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let first = row.add(at / 32 * 34 + 2);
            let second = if whole { first.add(34) } else { first };
            let first = _mm512_castsi256_si512(_mm256_loadu_si256(first.cast()));
            let both = _mm512_inserti64x4::<1>(first, _mm256_loadu_si256(second.cast()));
            _mm512_xor_si512(both, _mm512_set1_epi8(-128))
        }
    }
}

impl<const BYTES: usize> Weights for Fives<BYTES> {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, whole: bool, table: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let nibbles = Nibbles::<BYTES>::load(row, at, whole, table);
            let first = row.add(at / 32 * BYTES + BYTES - 20);
            let second = if whole { first.add(BYTES) } else { first };
            let bits = |at: *const u8| u64::from(at.cast::<u32>().read_unaligned());
            let high = bits(first) | bits(second) << 32;
            _mm512_mask_add_epi8(nibbles, high, nibbles, _mm512_set1_epi8(16))
        }
    }
}

/// Writes the scales, and minima, of a panel's part of 16 rows.
///
/// # Safety
/// The rows are valid; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn scales(part: &PanelRange, rows: &[*const u8; LANES], vector: usize, panel: &mut Panel) {
    let ty = part.ty;
    for i in 0..part.length / BLOCK {
        let at = (part.from / BLOCK + i) * ty.block_bytes();
        let mut numbers = [0u32; LANES];
        // SAFETY: the caller's contract: a block begins with its scale, and is larger than 4 bytes.
        unsafe {
            for (number, row) in numbers.iter_mut().zip(rows) {
                *number = row.add(at).cast::<u32>().read_unaligned();
            }
            let numbers = _mm512_loadu_si512(numbers.as_ptr().cast());
            let floats = |halves| _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
            let scale = if ty == WeightType::Mxfp4 { half_powers(numbers) } else { floats(numbers) };
            _mm512_store_ps(panel.scales[vector][i].as_mut_ptr(), scale);
            if ty.has_minima() {
                let minimum = floats(_mm512_srli_epi32::<16>(numbers));
                let sign = _mm512_set1_ps(-0.0);
                _mm512_store_ps(panel.minima[vector][i].as_mut_ptr(), _mm512_xor_ps(minimum, sign));
            }
        }
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
