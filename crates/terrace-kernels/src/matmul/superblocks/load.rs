//! Weights as unsigned bytes, with the scales of their blocks, with AVX-512.

use super::super::lanes::LaneBlocks;
use super::{BLOCK, BlockScales, LANES, MINIMA, OFFSETS, SUBS};
use crate::blocks::IQ4_NL_BYTES;
use crate::simd::array_of;
use std::arch::x86_64::*;

/// Unpacking of blocks of a type. The machine has AVX-512 wherever its functions are called.
pub(super) trait Superblock {
    const BYTES: usize;
    /// Values of a sub-block that products are multiplied by a scale for; a whole block if bytes are already scaled.
    const SCALED: usize;
    /// Values for which there is a sum of activations.
    const SUMMED: usize;
    const PAIRS: u8;

    /// 64 values of each of 16 rows from `at` on, a multiple of 64, four to a word. A block's values are taken in
    /// order: bytes that later ones are in, too, are kept between calls.
    ///
    /// # Safety
    /// The blocks are there.
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16];

    /// Writes the scales of the blocks of 16 rows, before their values are taken.
    ///
    /// # Safety
    /// The blocks are there.
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, kept: &mut Kept);

    /// Four bytes of each of 16 rows, which belong to sub-block `sub` of 16, multiplied by its scales.
    ///
    /// # Safety
    /// None but the machine's instructions.
    #[inline(always)]
    unsafe fn scale(bytes: __m512i, _scales: &BlockScales, _sub: usize) -> __m512i {
        bytes
    }
}

/// Words of 16 rows that a type keeps from one part of a block to the next.
pub(super) struct Kept(pub [__m512i; 24]);

impl Kept {
    /// # Safety
    /// The machine has AVX-512.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        // SAFETY: the caller's contract.
        unsafe { Self([_mm512_setzero_si512(); 24]) }
    }

    #[inline(always)]
    pub fn keep(&mut self, from: usize, words: [__m512i; 8]) {
        self.0[from..from + 8].copy_from_slice(&words);
    }
}

pub(super) struct Q2K;
pub(super) struct Q3K;
pub(super) struct Q4K;
pub(super) struct Q5K;
pub(super) struct Q6K;
pub(super) struct Iq4Xs;

/// Floats of the low 16 bits of each number.
#[inline(always)]
unsafe fn floats(halves: __m512i) -> __m512 {
    // SAFETY: the machine has AVX-512.
    unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)) }
}

#[inline(always)]
pub(super) unsafe fn store(to: *mut impl Sized, values: __m512i) {
    // SAFETY: the callers write arrays of 16 numbers of 32 bits.
    unsafe { _mm512_storeu_si512(to.cast(), values) }
}

#[inline(always)]
pub(super) unsafe fn store_floats(to: &mut [f32; LANES], values: __m512) {
    // SAFETY: 16 floats.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), values) }
}

/// The lowest two bytes of each number as two numbers of 16 bits.
#[inline(always)]
unsafe fn pair(bytes: __m512i) -> __m512i {
    // SAFETY: the machine has AVX-512.
    unsafe {
        let low = _mm512_and_si512(bytes, _mm512_set1_epi32(0xff));
        let high = _mm512_and_si512(bytes, _mm512_set1_epi32(0xff00));
        _mm512_or_si512(low, _mm512_slli_epi32::<8>(high))
    }
}

/// Writes the four bytes of each number as numbers, which `of` changes.
#[inline(always)]
unsafe fn store_bytes(to: &mut [[i32; LANES]], word: __m512i, of: impl Fn(__m512i) -> __m512i) {
    // SAFETY: the machine has AVX-512; arrays of 16 numbers.
    unsafe {
        let byte = _mm512_set1_epi32(0xff);
        store(to[0].as_mut_ptr(), of(_mm512_and_si512(word, byte)));
        store(to[1].as_mut_ptr(), of(_mm512_and_si512(_mm512_srli_epi32::<8>(word), byte)));
        store(to[2].as_mut_ptr(), of(_mm512_and_si512(_mm512_srli_epi32::<16>(word), byte)));
        store(to[3].as_mut_ptr(), of(_mm512_srli_epi32::<24>(word)));
    }
}

/// A number of 16 bits twice.
#[inline(always)]
unsafe fn twice(number: __m512i) -> __m512i {
    // SAFETY: the machine has AVX-512.
    unsafe { _mm512_or_si512(number, _mm512_slli_epi32::<16>(number)) }
}

/// Writes the pairs of a type whose unpacked bytes are `1 << SHIFT` too large.
#[inline(always)]
pub(super) unsafe fn offsets<const SHIFT: u32>(to: &mut BlockScales, subs: usize) {
    for i in 0..subs / 2 {
        // SAFETY: arrays of 16 numbers of 32 bits.
        unsafe {
            let of = |sub: usize| {
                let scale = _mm512_loadu_si512(to.subs[sub].as_ptr().cast());
                _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32::<SHIFT>(scale))
            };
            let low = _mm512_and_si512(of(2 * i), _mm512_set1_epi32(0xffff));
            let both = _mm512_or_si512(low, _mm512_slli_epi32::<16>(of(2 * i + 1)));
            store(to.pairs[i].as_mut_ptr(), both);
        }
    }
}

/// 32 bytes of each block, `at` bytes after its start, four to a word.
#[inline(always)]
pub(super) unsafe fn eight(blocks: impl LaneBlocks, at: usize) -> [__m512i; 8] {
    // SAFETY: the callers' contract.
    unsafe {
        let ([a, b, c, d], [e, f, g, h]) = (blocks.words(at), blocks.words(at + 16));
        [a, b, c, d, e, f, g, h]
    }
}

/// Some bits of each byte: `MASK` after shifting by `shift`, which is less than 8.
#[inline(always)]
unsafe fn bits<const MASK: i8>(words: __m512i, shift: usize) -> __m512i {
    // SAFETY: the machine has AVX-512.
    unsafe {
        let shifted = _mm512_srl_epi16(words, _mm_cvtsi32_si128(shift as i32));
        _mm512_and_si512(shifted, _mm512_set1_epi8(MASK))
    }
}

/// The low nibbles of 32 bytes, then the high ones.
#[inline(always)]
unsafe fn nibbles(blocks: impl LaneBlocks, at: usize) -> [__m512i; 16] {
    // SAFETY: the callers' contract.
    unsafe {
        let all = eight(blocks, at);
        array_of!(16, i => bits::<15>(all[i % 8], i / 8 * 4))
    }
}

/// The scales and minima of Q4_K and Q5_K.
#[inline(always)]
unsafe fn scales_and_minima(blocks: impl LaneBlocks, to: &mut BlockScales) {
    // SAFETY: the callers' contract: a block begins with two floats and 12 bytes of scales and minima.
    unsafe {
        let [two, a, b, c] = blocks.words(0);
        store_floats(&mut to.scale, floats(two));
        store_floats(&mut to.minimum, floats(_mm512_srli_epi32::<16>(two)));
        let six = _mm512_set1_epi8(0x3f);
        let (low, high) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
        let scales = [
            _mm512_and_si512(a, six),
            _mm512_or_si512(_mm512_and_si512(c, low), _mm512_and_si512(_mm512_srli_epi32::<2>(a), high)),
        ];
        let minima = [
            _mm512_and_si512(b, six),
            _mm512_or_si512(
                _mm512_and_si512(_mm512_srli_epi32::<4>(c), low),
                _mm512_and_si512(_mm512_srli_epi32::<2>(b), high),
            ),
        ];
        for (i, (scales, minima)) in scales.into_iter().zip(minima).enumerate() {
            store_bytes(&mut to.subs[i * 4..][..4], scales, |scale| scale);
            store(to.pairs[i * 2].as_mut_ptr(), pair(minima));
            store(to.pairs[i * 2 + 1].as_mut_ptr(), pair(_mm512_srli_epi32::<16>(minima)));
        }
    }
}

impl Superblock for Q4K {
    const BYTES: usize = 144;
    const SCALED: usize = 32;
    const SUMMED: usize = 32;
    const PAIRS: u8 = MINIMA;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, _: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe { nibbles(blocks, 16 + at / 2) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe { scales_and_minima(blocks, to) }
    }
}

impl Superblock for Q5K {
    const BYTES: usize = 176;
    const SCALED: usize = 32;
    const SUMMED: usize = 32;
    const PAIRS: u8 = MINIMA;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            if at == 0 {
                kept.keep(0, eight(blocks, 16));
            }
            let low = nibbles(blocks, 48 + at / 2);
            array_of!(16, i => {
                let high = bits::<1>(kept.0[i % 8], at / 32 + i / 8);
                _mm512_or_si512(low[i], _mm512_slli_epi16::<4>(high))
            })
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe { scales_and_minima(blocks, to) }
    }
}

impl Superblock for Q6K {
    const BYTES: usize = 210;
    const SCALED: usize = 16;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            // The first 64 values of 128 have low nibbles and the two lowest pairs of bits.
            let (half, second) = (at / 128, at % 128 / 64);
            if second == 0 {
                kept.keep(0, eight(blocks, half * 64));
                kept.keep(8, eight(blocks, half * 64 + 32));
                kept.keep(16, eight(blocks, 128 + half * 32));
            }
            array_of!(16, i => {
                let high = bits::<3>(kept.0[16 + i % 8], second * 4 + i / 8 * 2);
                let low = bits::<15>(kept.0[i], second * 4);
                _mm512_or_si512(low, _mm512_slli_epi16::<4>(high))
            })
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            store_floats(&mut to.scale, _mm512_cvtph_ps(blocks.last(210).1));
            for (i, word) in blocks.words(192).into_iter().enumerate() {
                let signed = |byte| _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(byte));
                store_bytes(&mut to.subs[i * 4..][..4], word, signed);
            }
            offsets::<5>(to, 16);
        }
    }
}

impl Superblock for Iq4Xs {
    const BYTES: usize = 136;
    const SCALED: usize = 32;
    const SUMMED: usize = 32;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, _: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            let all = eight(blocks, 8 + at / 2);
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(IQ4_NL_BYTES.as_ptr().cast()));
            // Sub-blocks have the low nibbles of 16 bytes, then the high ones.
            array_of!(16, i => {
                let nibbles = bits::<15>(all[i / 8 * 4 + i % 4], i % 8 / 4 * 4);
                _mm512_shuffle_epi8(table, nibbles)
            })
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            let [first, low, ..] = blocks.words(0);
            store_floats(&mut to.scale, floats(first));
            for sub in 0..8 {
                let shift = |by: usize| _mm_cvtsi32_si128(by as i32);
                let low = _mm512_and_si512(_mm512_srl_epi32(low, shift(4 * sub)), _mm512_set1_epi32(15));
                let high = _mm512_srl_epi32(first, shift(16 + 2 * sub));
                let high = _mm512_slli_epi32::<4>(_mm512_and_si512(high, _mm512_set1_epi32(3)));
                let scale = _mm512_sub_epi32(_mm512_or_si512(low, high), _mm512_set1_epi32(32));
                store(to.subs[sub].as_mut_ptr(), scale);
            }
            offsets::<7>(to, 8);
        }
    }
}

/// The values of two bits of Q2_K and Q3_K, which begin `first` bytes after a block's start.
///
/// # Safety
/// As for [`Superblock::words`].
#[inline(always)]
unsafe fn pairs_of_bits(blocks: impl LaneBlocks, first: usize, at: usize, kept: &mut Kept) -> [__m512i; 16] {
    // SAFETY: the caller's contract.
    unsafe {
        if at.is_multiple_of(128) {
            kept.keep(0, eight(blocks, first + at / 128 * 32));
        }
        array_of!(16, i => bits::<3>(kept.0[i % 8], at % 128 / 16 + i / 8 * 2))
    }
}

impl Superblock for Q2K {
    const BYTES: usize = 84;
    // Values of 2 bits and scales of 4 make bytes.
    const SCALED: usize = BLOCK;
    const SUMMED: usize = 16;
    const PAIRS: u8 = MINIMA;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe { pairs_of_bits(blocks, 16, at, kept) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            let halves = blocks.word(80);
            store_floats(&mut to.scale, floats(halves));
            store_floats(&mut to.minimum, floats(_mm512_srli_epi32::<16>(halves)));
            for (i, word) in blocks.words(0).into_iter().enumerate() {
                let scales = _mm512_and_si512(word, _mm512_set1_epi8(15));
                let minima = _mm512_and_si512(_mm512_srli_epi32::<4>(word), _mm512_set1_epi8(15));
                store_bytes(&mut to.subs[i * 4..][..4], scales, |scale| twice(scale));
                store(to.pairs[i * 2].as_mut_ptr(), pair(minima));
                store(to.pairs[i * 2 + 1].as_mut_ptr(), pair(_mm512_srli_epi32::<16>(minima)));
            }
        }
    }

    #[inline(always)]
    unsafe fn scale(bytes: __m512i, scales: &BlockScales, sub: usize) -> __m512i {
        // SAFETY: 16 numbers; products of bytes are at most 45, so that none reaches the next byte.
        unsafe { _mm512_mullo_epi16(bytes, _mm512_loadu_si512(scales.subs[sub].as_ptr().cast())) }
    }
}

/// Writes the scales of Q3_K, those of sub-blocks, from 0 to 63, as `of` changes them.
#[inline(always)]
unsafe fn scales_of_q3k(blocks: impl LaneBlocks, to: &mut BlockScales, of: impl Fn(__m512i) -> __m512i) {
    // SAFETY: the callers' contract.
    unsafe {
        // 12 bytes of scales, and a float.
        let ([a, b, c], half) = blocks.last(110);
        store_floats(&mut to.scale, _mm512_cvtph_ps(half));
        let (four, two) = (_mm512_set1_epi8(15), _mm512_set1_epi8(3));
        let low = [a, b, _mm512_srli_epi32::<4>(a), _mm512_srli_epi32::<4>(b)];
        let high = [c, _mm512_srli_epi32::<2>(c), _mm512_srli_epi32::<4>(c), _mm512_srli_epi32::<6>(c)];
        for (i, (low, high)) in low.into_iter().zip(high).enumerate() {
            let high = _mm512_slli_epi32::<4>(_mm512_and_si512(high, two));
            let six = _mm512_or_si512(_mm512_and_si512(low, four), high);
            store_bytes(&mut to.subs[i * 4..][..4], six, &of);
        }
    }
}

/// Excess of the scaled bytes of Q3_K: then they are 0 to 252.
const Q3K_OFFSET: i16 = 124;

impl Superblock for Q3K {
    const BYTES: usize = 110;
    // Values from -4 to 3 and scales from -32 to 31 make bytes.
    const SCALED: usize = BLOCK;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            if at == 0 {
                kept.keep(8, eight(blocks, 0));
            }
            let low = pairs_of_bits(blocks, 32, at, kept);
            array_of!(16, i => {
                let high = bits::<1>(kept.0[8 + i % 8], at / 32 + i / 8);
                _mm512_or_si512(low[i], _mm512_slli_epi16::<2>(high))
            })
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            scales_of_q3k(blocks, to, |six| _mm512_sub_epi16(twice(six), _mm512_set1_epi16(32)));
            for pairs in &mut to.pairs[..SUBS / 2] {
                store(pairs.as_mut_ptr(), _mm512_set1_epi16(-Q3K_OFFSET));
            }
        }
    }

    #[inline(always)]
    unsafe fn scale(bytes: __m512i, scales: &BlockScales, sub: usize) -> __m512i {
        // SAFETY: 16 numbers.
        unsafe {
            let scale = _mm512_loadu_si512(scales.subs[sub].as_ptr().cast());
            let offset = _mm512_sub_epi16(_mm512_set1_epi16(Q3K_OFFSET), _mm512_slli_epi16::<2>(scale));
            let even = _mm512_and_si512(bytes, _mm512_set1_epi16(0xff));
            let odd = _mm512_srli_epi16::<8>(bytes);
            let even = _mm512_add_epi16(_mm512_mullo_epi16(even, scale), offset);
            let odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, scale), offset);
            _mm512_or_si512(even, _mm512_slli_epi16::<8>(odd))
        }
    }
}

/// Q3_K whose bytes are not scaled, which is less work for few rows of activations.
pub(super) struct PlainQ3K;

impl Superblock for PlainQ3K {
    const BYTES: usize = Q3K::BYTES;
    const SCALED: usize = 16;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe { Q3K::words(blocks, at, kept) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            scales_of_q3k(blocks, to, |six| _mm512_sub_epi32(six, _mm512_set1_epi32(32)));
            offsets::<2>(to, SUBS);
        }
    }
}
