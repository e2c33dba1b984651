//! Blocks of the K-quants of single rows as bytes, with the scales of four blocks, with AVX-512.
//!
//! This is all that kernels of different orders of sums share.

use super::{MINIMA, OFFSETS};
use crate::simd::array_of;
use std::arch::x86_64::*;

/// Blocks whose scales are read together: of as many rows, or of one.
pub const GROUP: usize = 4;

/// The scales of four blocks.
#[derive(Clone, Copy, Debug)]
pub struct RowScales {
    /// Of each block.
    pub scale: __m128,
    /// Of each block; zero for types without minima.
    pub minimum: __m128,
    /// Of each block: those of its sub-blocks, as numbers of 16 bits. Those of Q4_K and Q5_K are followed by the minima.
    pub subs: [__m256i; GROUP],
    /// Of each block: what sums of activations are multiplied with, in the order of [`RowBlock::sums`].
    pub pairs: [__m256i; GROUP],
}

/// Unpacking of blocks of a type.
///
/// # Safety
/// Of all its functions, beside what each says: the machine has AVX-512 F, BW, DQ and VL.
pub trait RowBlock {
    /// Bytes of a block.
    const BYTES: usize;
    /// Values for which there is a sum of activations.
    const SUMMED: usize;
    /// Use of [`RowScales::pairs`].
    const PAIRS: u8;
    /// For each word of unpacked bytes, two numbers of 16 bits of [`RowScales::subs`]: its sub-block's for the lower half,
    /// one that is zero for the upper half.
    const SUBS: [[[u16; 2]; 16]; 4];

    /// A block's values as unsigned bytes, in an order of the type's own.
    ///
    /// # Safety
    /// The block is there.
    unsafe fn values(block: *const u8) -> [__m512i; 4];

    /// A block of activations in the same order.
    ///
    /// # Safety
    /// The 256 bytes are there.
    unsafe fn activations(input: *const u8) -> [__m512i; 4];

    /// The scales of four blocks.
    ///
    /// # Safety
    /// The blocks are there.
    unsafe fn scales(blocks: &[*const u8; GROUP]) -> RowScales;

    /// A block's sums of activations, each where its sub-block's number is in [`RowScales::pairs`].
    ///
    /// # Safety
    /// The sums of the block are there.
    #[inline(always)]
    unsafe fn sums(sums: *const u8) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe { _mm256_loadu_si256(sums.cast()) }
    }
}

/// Q2_K.
#[derive(Clone, Copy, Debug)]
pub struct Q2K;
/// Q3_K.
#[derive(Clone, Copy, Debug)]
pub struct Q3K;
/// Q4_K, and Q5_K, whose values have a fifth bit.
#[derive(Clone, Copy, Debug)]
pub struct Nibbles<const FIFTH: bool>;
/// Q4_K.
pub type Q4K = Nibbles<false>;
/// Q5_K.
pub type Q5K = Nibbles<true>;
/// Q6_K.
#[derive(Clone, Copy, Debug)]
pub struct Q6K;

/// [`RowBlock::SUBS`] of vectors with half of their words in each of two runs of values: `first` has the first sub-block
/// of both runs of each vector, and sub-blocks have so many words.
const fn subs(first: [[u16; 2]; 4], words: usize) -> [[[u16; 2]; 16]; 4] {
    // The upper half of a vector whose lower half has the numbers.
    const ZERO: u16 = 16;
    let mut of = [[[0, ZERO]; 16]; 4];
    let mut i = 0;
    while i < 64 {
        let (vector, word) = (i / 16, i % 16);
        of[vector][word][0] = first[vector][word / 8] + (word % 8 / words) as u16;
        i += 1;
    }
    of
}

/// Two runs of 32 bytes.
///
/// # Safety
/// The bytes are there.
#[inline(always)]
unsafe fn runs(first: *const u8, second: *const u8) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let first = _mm512_castsi256_si512(_mm256_loadu_si256(first.cast()));
        _mm512_inserti64x4::<1>(first, _mm256_loadu_si256(second.cast()))
    }
}

/// 64 bytes.
///
/// # Safety
/// The bytes are there.
#[inline(always)]
unsafe fn bytes(at: *const u8) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// 32 bytes, twice.
///
/// # Safety
/// The bytes are there.
#[inline(always)]
unsafe fn twice(at: *const u8) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(at.cast())) }
}

/// 16 bytes of each of four blocks, one in each quarter.
///
/// # Safety
/// The bytes are there.
#[inline(always)]
unsafe fn quarters(blocks: &[*const u8; GROUP], at: usize) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let load = |row: usize| _mm_loadu_si128(blocks[row].wrapping_add(at).cast());
        // Masked loads put parts into place without a shuffle, of which there are too few a cycle.
        let all = _mm512_castsi128_si512(load(0));
        let all = _mm512_mask_broadcast_i32x4(all, 0x00f0, load(1));
        let all = _mm512_mask_broadcast_i32x4(all, 0x0f00, load(2));
        _mm512_mask_broadcast_i32x4(all, 0xf000, load(3))
    }
}

/// Each quarter's 16 bytes as numbers of 16 bits, as `widen` makes them.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn widened(all: __m512i, widen: impl Fn(__m128i) -> __m256i) -> [__m256i; GROUP] {
    // SAFETY: the caller's contract.
    unsafe {
        [
            widen(_mm512_castsi512_si128(all)),
            widen(_mm512_extracti32x4_epi32::<1>(all)),
            widen(_mm512_extracti32x4_epi32::<2>(all)),
            widen(_mm512_extracti32x4_epi32::<3>(all)),
        ]
    }
}

/// The floats whose 16 bits are `at` bytes after the start of each block.
///
/// # Safety
/// The bytes are there.
#[inline(always)]
pub(super) unsafe fn floats(blocks: &[*const u8; GROUP], at: usize) -> __m128 {
    // SAFETY: the caller's contract.
    unsafe {
        let half = |row: usize| i32::from(blocks[row].wrapping_add(at).cast::<i16>().read_unaligned());
        let halves = _mm_cvtsi32_si128(half(0));
        let halves = _mm_insert_epi16::<1>(halves, half(1));
        let halves = _mm_insert_epi16::<2>(halves, half(2));
        _mm_cvtph_ps(_mm_insert_epi16::<3>(halves, half(3)))
    }
}

/// Some bits of each byte, moved to the left by the first number in the lower half, by the second in the upper one.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn left<const LOW: i16, const HIGH: i16, const MASK: i8>(bytes: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_and_si512(_mm512_sllv_epi16(bytes, by_halves(LOW, HIGH)), _mm512_set1_epi8(MASK)) }
}

/// The same to the right.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn right<const LOW: i16, const HIGH: i16, const MASK: i8>(bytes: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_and_si512(_mm512_srlv_epi16(bytes, by_halves(LOW, HIGH)), _mm512_set1_epi8(MASK)) }
}

/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn by_halves(low: i16, high: i16) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_inserti64x4::<1>(_mm512_set1_epi16(low), _mm256_set1_epi16(high)) }
}

impl<const FIFTH: bool> RowBlock for Nibbles<FIFTH> {
    const BYTES: usize = if FIFTH { 176 } else { 144 };
    const SUMMED: usize = 32;
    const PAIRS: u8 = MINIMA;
    const SUBS: [[[u16; 2]; 16]; 4] = subs([[0, 2], [1, 3], [4, 6], [5, 7]], 8);

    #[inline(always)]
    unsafe fn values(block: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe {
            let first = block.wrapping_add(Self::BYTES - 128);
            let (a, b) = (bytes(first), bytes(first.wrapping_add(64)));
            let low =
                [right::<0, 0, 15>(a), right::<4, 4, 15>(a), right::<0, 0, 15>(b), right::<4, 4, 15>(b)];
            if !FIFTH {
                return low;
            }
            // Bit `i` of a byte belongs to sub-block `i`.
            let bits = twice(block.wrapping_add(16));
            [
                _mm512_or_si512(low[0], left::<4, 2, 16>(bits)),
                _mm512_or_si512(low[1], left::<3, 1, 16>(bits)),
                _mm512_or_si512(low[2], right::<0, 2, 16>(bits)),
                _mm512_or_si512(low[3], right::<1, 3, 16>(bits)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn activations(input: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe {
            let of = |at: usize| runs(input.wrapping_add(at), input.wrapping_add(at + 64));
            [of(0), of(32), of(128), of(160)]
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: &[*const u8; GROUP]) -> RowScales {
        // SAFETY: the caller's contract: a block begins with two floats and 12 bytes of scales and minima.
        unsafe {
            let all = quarters(blocks, 0);
            let each = |a, b, c, d| _mm512_broadcast_i32x4(_mm_set_epi32(d, c, b, a));
            // Of words 1, 2 and 3: the lower bits of the first four are in word 1 and 2, those of the others in word 3,
            // and their two upper bits in words 1 and 2.
            let low = _mm512_srlv_epi32(_mm512_shuffle_epi32::<0b11_10_11_01>(all), each(0, 0, 0, 4));
            let low = _mm512_and_si512(low, each(0x3f3f_3f3f, 0x0f0f_0f0f, 0x3f3f_3f3f, 0x0f0f_0f0f));
            let high = _mm512_srli_epi32::<2>(_mm512_shuffle_epi32::<0b10_00_01_00>(all));
            let high = _mm512_and_si512(high, each(0, 0x3030_3030, 0, 0x3030_3030));
            let subs = widened(_mm512_or_si512(low, high), |bytes| _mm256_cvtepu8_epi16(bytes));
            RowScales { scale: floats(blocks, 0), minimum: floats(blocks, 2), subs, pairs: subs }
        }
    }

    #[inline(always)]
    unsafe fn sums(sums: *const u8) -> __m256i {
        // SAFETY: the caller's contract; the numbers of a row begin with scales.
        unsafe { _mm256_inserti128_si256::<1>(_mm256_setzero_si256(), _mm_loadu_si128(sums.cast())) }
    }
}

impl RowBlock for Q6K {
    const BYTES: usize = 210;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;
    const SUBS: [[[u16; 2]; 16]; 4] = subs([[0, 2], [4, 6], [8, 10], [12, 14]], 4);

    #[inline(always)]
    unsafe fn values(block: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe {
            let [[a, b], [c, d]] = array_of!(2, at => {
                // Low nibbles, then high ones, and bits from the lowest pair to the highest.
                let low = bytes(block.wrapping_add(at * 64));
                let high = twice(block.wrapping_add(128 + at * 32));
                [
                    _mm512_or_si512(right::<0, 0, 15>(low), left::<4, 2, 0x30>(high)),
                    _mm512_or_si512(right::<4, 4, 15>(low), right::<0, 2, 0x30>(high)),
                ]
            });
            [a, b, c, d]
        }
    }

    #[inline(always)]
    unsafe fn activations(input: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        std::array::from_fn(|i| unsafe { bytes(input.wrapping_add(i * 64)) })
    }

    #[inline(always)]
    unsafe fn scales(blocks: &[*const u8; GROUP]) -> RowScales {
        // SAFETY: the caller's contract.
        unsafe {
            let subs =
                blocks.map(|block| _mm256_cvtepi8_epi16(_mm_loadu_si128(block.wrapping_add(192).cast())));
            let pairs = subs.map(|subs| _mm256_mullo_epi16(subs, _mm256_set1_epi16(-32)));
            RowScales { scale: floats(blocks, 208), minimum: _mm_setzero_ps(), subs, pairs }
        }
    }
}

const TWO_BITS: [[[u16; 2]; 16]; 4] = subs([[0, 8], [2, 10], [4, 12], [6, 14]], 4);

/// Activations of types that have 128 values in each pair of bits of 32 bytes.
///
/// # Safety
/// The 256 bytes are there.
#[inline(always)]
unsafe fn activations_of_two_bits(input: *const u8) -> [__m512i; 4] {
    // SAFETY: the caller's contract.
    std::array::from_fn(|i| unsafe { runs(input.wrapping_add(i * 32), input.wrapping_add(128 + i * 32)) })
}

impl RowBlock for Q2K {
    const BYTES: usize = 84;
    const SUMMED: usize = 16;
    const PAIRS: u8 = MINIMA;
    const SUBS: [[[u16; 2]; 16]; 4] = TWO_BITS;

    #[inline(always)]
    unsafe fn values(block: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe {
            let all = bytes(block.wrapping_add(16));
            [right::<0, 0, 3>(all), right::<2, 2, 3>(all), right::<4, 4, 3>(all), right::<6, 6, 3>(all)]
        }
    }

    #[inline(always)]
    unsafe fn activations(input: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe { activations_of_two_bits(input) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: &[*const u8; GROUP]) -> RowScales {
        // SAFETY: the caller's contract.
        unsafe {
            let both = blocks.map(|block| _mm256_cvtepu8_epi16(_mm_loadu_si128(block.cast())));
            let subs = both.map(|both| _mm256_and_si256(both, _mm256_set1_epi16(15)));
            let pairs = both.map(|both| _mm256_srli_epi16::<4>(both));
            RowScales { scale: floats(blocks, 80), minimum: floats(blocks, 82), subs, pairs }
        }
    }
}

impl RowBlock for Q3K {
    const BYTES: usize = 110;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;
    const SUBS: [[[u16; 2]; 16]; 4] = TWO_BITS;

    #[inline(always)]
    unsafe fn values(block: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe {
            let low = bytes(block.wrapping_add(32));
            // Bits 0 to 3 belong to the first 128 values, bits 4 to 7 to the others.
            let high = twice(block);
            [
                _mm512_or_si512(right::<0, 0, 3>(low), by_bit::<0>(high)),
                _mm512_or_si512(right::<2, 2, 3>(low), by_bit::<1>(high)),
                _mm512_or_si512(right::<4, 4, 3>(low), by_bit::<2>(high)),
                _mm512_or_si512(right::<6, 6, 3>(low), by_bit::<3>(high)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn activations(input: *const u8) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe { activations_of_two_bits(input) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: &[*const u8; GROUP]) -> RowScales {
        // SAFETY: the caller's contract.
        unsafe {
            let each = |a, b, c, d| _mm512_broadcast_i32x4(_mm_set_epi32(d, c, b, a));
            // Three words of scales, of which the first two have low nibbles and the last has pairs of bits.
            let all = _mm512_bsrli_epi128::<2>(quarters(blocks, 94));
            let low = _mm512_srlv_epi32(_mm512_shuffle_epi32::<0b01_00_01_00>(all), each(0, 0, 4, 4));
            let low = _mm512_and_si512(low, _mm512_set1_epi8(15));
            let high = _mm512_srlv_epi32(_mm512_shuffle_epi32::<0b10_10_10_10>(all), each(0, 2, 4, 6));
            let high = _mm512_slli_epi32::<4>(_mm512_and_si512(high, _mm512_set1_epi8(3)));
            let scales = _mm512_sub_epi8(_mm512_or_si512(low, high), _mm512_set1_epi8(32));
            let subs = widened(scales, |bytes| _mm256_cvtepi8_epi16(bytes));
            let pairs = subs.map(|subs| _mm256_mullo_epi16(subs, _mm256_set1_epi16(-4)));
            RowScales { scale: floats(blocks, 108), minimum: _mm_setzero_ps(), subs, pairs }
        }
    }
}

/// The bit `BIT` of each byte of the lower half, and bit `BIT + 4` of the upper half, as 4 or 0.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn by_bit<const BIT: i16>(bytes: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let shifted = match BIT {
            0 => _mm512_slli_epi16::<2>(bytes),
            1 => _mm512_slli_epi16::<1>(bytes),
            2 => bytes,
            _ => _mm512_srli_epi16::<1>(bytes),
        };
        // Bit 2 in the lower half, bit 6 in the upper one.
        let upper = _mm512_srlv_epi16(shifted, by_halves(0, 4));
        _mm512_and_si512(upper, _mm512_set1_epi8(4))
    }
}
