//! Blocks of single rows of types with grids as bytes, two rows at a time, with permutations of bytes (AVX-512 VBMI) and
//! products of bits (GFNI).
//!
//! Entries come as numbers of 16 bits, in their order: four codes of 2 bits in each byte, or two of 4 bits. One shift moves
//! the same code of all bytes into place, beside a sign. Grids of up to 512 entries are looked up in registers, for two
//! rows of 32 entries or one of 64; larger ones are gathered.

use super::dots::ROWS;
use super::dots_grid::{PairDots, Row, evens_and_odds};
use super::grid_row_tables::{
    BIT_15_AT_1, FOURTHS_AT_1, HIGH_IQ1_M, HIGH_IQ1_S, HIGH_IQ2_S, SCALES_AT_12, SCALES_AT_60, SCALES_IQ1_M,
    SCALES_OF_8, SCALES_OF_16, SEVENS_FROM_0, SEVENS_FROM_32, VALUES_IQ2, VALUES_IQ3_S, VALUES_IQ3_XXS,
};
use super::grid_tables::{
    Bytes, CODES_OF_IQ2_XS, CODES_OF_IQ2_XXS, CODES_OF_IQ3_S, CODES_OF_IQ3_XXS, Codes, GATHERED_IQ1,
    GATHERED_IQ2_S,
};
use super::load_grid::{WITH_PARITY, select, shifted, with_parity};
use std::arch::x86_64::*;

pub(super) struct Iq2Xxs;
pub(super) struct Iq2Xs;
pub(super) struct Iq2S;
pub(super) struct Iq3Xxs;
pub(super) struct Iq3S;
pub(super) struct Iq1S;
pub(super) struct Iq1M;

/// 64 bytes.
#[inline(always)]
unsafe fn bytes(at: *const u8) -> __m512i {
    // SAFETY: the callers' contract: the bytes are there.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// 8 bytes everywhere.
#[inline(always)]
unsafe fn everywhere(at: *const u8) -> __m512i {
    // SAFETY: the callers' contract: the bytes are there.
    unsafe { _mm512_set1_epi64(at.cast::<i64>().read_unaligned()) }
}

/// 16 bytes, of which each two become a number of 64 bits.
#[inline(always)]
unsafe fn as_longs(at: *const u8) -> __m512i {
    // SAFETY: the callers' contract: the bytes are there.
    unsafe { _mm512_cvtepu16_epi64(_mm_loadu_si128(at.cast())) }
}

/// 32 bytes, of which each becomes a number of 16 bits.
#[inline(always)]
unsafe fn as_halves(at: *const u8) -> __m512i {
    // SAFETY: the callers' contract: the bytes are there.
    unsafe { _mm512_cvtepu8_epi16(_mm256_loadu_si256(at.cast())) }
}

/// Twice a number, which begins at bit 1 of words, and one more; `mask` has its bits.
#[inline(always)]
unsafe fn odd(words: __m512i, mask: i32) -> __m512i {
    // SAFETY: the machine has AVX-512. (words & mask) | one
    unsafe { _mm512_ternarylogic_epi32::<0xea>(words, _mm512_set1_epi32(2 * mask), _mm512_set1_epi32(1)) }
}

/// The bytes of 64 entries of a table; `high` has bits 6, 7 and 8 of each index.
#[inline(always)]
unsafe fn look_up<const PARTS: usize>(
    table: &[Bytes; PARTS],
    index: __m512i,
    high: [__mmask64; 3],
) -> __m512i {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let two = |part: usize| {
            let first = _mm512_permutexvar_epi8(index, table[2 * part].load());
            _mm512_mask_permutexvar_epi8(first, high[0], index, table[2 * part + 1].load())
        };
        let four = |half: usize| _mm512_mask_blend_epi8(high[1], two(2 * half), two(2 * half + 1));
        if PARTS == 4 { four(0) } else { _mm512_mask_blend_epi8(high[2], four(0), four(1)) }
    }
}

/// The low and high bytes of the codes of 64 entries; `eighth` is bit 8 of indices.
#[inline(always)]
unsafe fn codes<const PARTS: usize>(table: &Codes<PARTS>, index: __m512i, eighth: __mmask64) -> [__m512i; 2] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let sixth = _mm512_movepi8_mask(_mm512_add_epi8(index, index));
        let high = [sixth, _mm512_movepi8_mask(index), eighth];
        [look_up(&table.low, index, high), look_up(&table.high, index, high)]
    }
}

/// The same of 32 entries of each of two rows, of which each 16 bytes have eight indices.
#[inline(always)]
unsafe fn codes_of_two<const PARTS: usize>(
    table: &Codes<PARTS>,
    index: __m512i,
    eighth: __mmask64,
) -> [__m512i; 2] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let [low, high] = codes(table, index, eighth);
        [_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)]
    }
}

/// The codes of 32 entries whose indices have a byte, and bits above it where `places` says in `high`.
///
/// # Safety
/// 32 bytes are there; `table` has `1 << BITS` entries, and one more at each end; the machine has AVX-512 VBMI.
#[inline(always)]
unsafe fn gathered<const BITS: u32>(
    table: &[u16],
    low: *const u8,
    high: __m512i,
    places: &[Bytes; 2],
) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(low.cast()));
        let index = |low, i: usize| {
            let index = select(0xff, low, shifted(high, &places[i]));
            _mm512_and_si512(index, _mm512_set1_epi32((1 << BITS) - 1))
        };
        let (even, odd) = (index(low, 0), index(_mm512_srli_epi32::<8>(low), 1));
        // Words of an entry and the one after it, and of an entry and the one before it.
        let even = _mm512_i32gather_epi32::<2>(even, table.as_ptr().add(1).cast());
        let odd = _mm512_i32gather_epi32::<2>(odd, table.as_ptr().cast());
        _mm512_mask_blend_epi16(0xaaaa_aaaa, even, odd)
    }
}

/// Signs of four weights in each byte, from those of eight in numbers of 16 bits.
#[inline(always)]
unsafe fn fours(signs: __m512i) -> __m512i {
    // SAFETY: the machine has AVX-512.
    unsafe { _mm512_or_si512(signs, _mm512_slli_epi16::<4>(signs)) }
}

/// The same from seven bits of each eight, which both bytes have: an even number is negative.
#[inline(always)]
unsafe fn fours_of_sevens(sevens: __m512i) -> __m512i {
    // SAFETY: the machine has AVX-512 and GFNI.
    unsafe {
        let signs = with_parity(sevens, WITH_PARITY);
        _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, signs, _mm512_srli_epi16::<4>(signs))
    }
}

/// The weights of codes of 2 bits, with signs of four weights in each byte.
#[inline(always)]
unsafe fn of_twos(codes: __m512i, signs: __m512i) -> [__m512i; 4] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let value = |mask: i32, codes, signs, i: usize| {
            _mm512_permutexvar_epi8(select(0x0101_0101 * mask, codes, signs), VALUES_IQ2[i].load())
        };
        [
            value(0b11, codes, _mm512_slli_epi16::<2>(signs), 0),
            value(0b1100, codes, signs, 1),
            value(0b11_0000, codes, signs, 2),
            value(0b11_0000, _mm512_srli_epi16::<2>(codes), signs, 3),
        ]
    }
}

/// The weights of codes of 4 bits, the low and the high bytes of entries, with signs of four weights in each byte.
#[inline(always)]
unsafe fn of_nibbles([low, high]: [__m512i; 2], signs: __m512i, values: &[Bytes; 4]) -> [__m512i; 4] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let value = |codes, signs, i: usize| {
            _mm512_permutexvar_epi8(select(0x0707_0707, codes, signs), values[i].load())
        };
        let above = _mm512_slli_epi16::<3>(signs);
        [
            value(low, above, 0),
            value(_mm512_srli_epi16::<4>(low), above, 1),
            value(high, above, 2),
            value(_mm512_srli_epi16::<4>(high), signs, 3),
        ]
    }
}

impl PairDots for Iq2Xxs {
    const BYTES: usize = 66;
    const TIMES: f32 = 0.125;
    const SUB: usize = 32;

    #[inline(always)]
    unsafe fn unpack([a, b]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let (a, b) = (bytes(a.wrapping_add(2)), bytes(b.wrapping_add(2)));
            let codes = codes_of_two(&CODES_OF_IQ2_XXS, evens_and_odds(a, b)[0], 0);
            let row = |codes, all| {
                let signs = fours_of_sevens(shifted(all, &SEVENS_FROM_32));
                Row { values: of_twos(codes, signs), scales: odd(shifted(all, &SCALES_AT_60), 15) }
            };
            [row(codes[0], a), row(codes[1], b)]
        }
    }
}

impl PairDots for Iq2Xs {
    const BYTES: usize = 74;
    const TIMES: f32 = 0.125;
    const SUB: usize = 16;

    #[inline(always)]
    unsafe fn unpack([first, second]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let (a, b) = (bytes(first.wrapping_add(2)), bytes(second.wrapping_add(2)));
            let byte = _mm512_set1_epi16(0xff);
            let index = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
            let upper = _mm512_packus_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b));
            let eighth = _mm512_movepi8_mask(_mm512_slli_epi16::<7>(upper));
            let codes = codes_of_two(&CODES_OF_IQ2_XS, index, eighth);
            let row = |codes, all, block: *const u8| {
                let signs = fours(with_parity(_mm512_srli_epi16::<9>(all), WITH_PARITY));
                let scales = shifted(everywhere(block.wrapping_add(66)), &SCALES_OF_16);
                Row { values: of_twos(codes, signs), scales: odd(scales, 15) }
            };
            [row(codes[0], a, first), row(codes[1], b, second)]
        }
    }
}

impl PairDots for Iq2S {
    const BYTES: usize = 82;
    const TIMES: f32 = 0.125;
    const SUB: usize = 16;

    #[inline(always)]
    unsafe fn unpack([a, b]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let row = |block: *const u8| {
                let high = everywhere(block.wrapping_add(66));
                let codes = gathered::<10>(&GATHERED_IQ2_S, block.wrapping_add(2), high, &HIGH_IQ2_S);
                let signs = fours(as_halves(block.wrapping_add(34)));
                let scales = shifted(everywhere(block.wrapping_add(74)), &SCALES_OF_16);
                Row { values: of_twos(codes, signs), scales: odd(scales, 15) }
            };
            [row(a), row(b)]
        }
    }
}

impl PairDots for Iq3Xxs {
    const BYTES: usize = 98;
    const TIMES: f32 = 0.25;
    const SUB: usize = 32;

    #[inline(always)]
    unsafe fn unpack([a, b]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let row = |block: *const u8| {
                let codes = codes(&CODES_OF_IQ3_XXS, bytes(block.wrapping_add(2)), 0);
                // A word of signs and a scale in both words of its sub-block.
                let last = _mm512_castsi256_si512(_mm256_loadu_si256(block.wrapping_add(66).cast()));
                let twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
                let last = _mm512_permutexvar_epi32(twice, last);
                let signs = fours_of_sevens(shifted(last, &SEVENS_FROM_0));
                let values = of_nibbles(codes, signs, &VALUES_IQ3_XXS);
                Row { values, scales: odd(_mm512_srli_epi32::<27>(last), 15) }
            };
            [row(a), row(b)]
        }
    }
}

impl PairDots for Iq3S {
    const BYTES: usize = 110;
    const SUB: usize = 32;

    #[inline(always)]
    unsafe fn unpack([a, b]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let row = |block: *const u8| {
                let eighth = block.wrapping_add(66).cast::<u64>().read_unaligned();
                let codes = codes(&CODES_OF_IQ3_S, bytes(block.wrapping_add(2)), eighth);
                let signs = fours(as_halves(block.wrapping_add(74)));
                let scales = _mm512_set1_epi32(block.wrapping_add(106).cast::<i32>().read_unaligned());
                let values = of_nibbles(codes, signs, &VALUES_IQ3_S);
                Row { values, scales: odd(shifted(scales, &SCALES_OF_8), 15) }
            };
            [row(a), row(b)]
        }
    }
}

/// Weights of IQ1 in eighths, 9 too large: eight times a code, and two more where `minus` does not have bit 1.
#[inline(always)]
unsafe fn eighths(codes: __m512i, minus: __m512i) -> [__m512i; 4] {
    // SAFETY: the machine has AVX-512.
    unsafe {
        let plus = _mm512_andnot_si512(minus, _mm512_set1_epi8(2));
        // (codes & mask) | plus
        let value = |codes| _mm512_ternarylogic_epi32::<0xea>(codes, _mm512_set1_epi8(0x18), plus);
        [
            value(_mm512_slli_epi16::<3>(codes)),
            value(_mm512_slli_epi16::<1>(codes)),
            value(_mm512_srli_epi16::<1>(codes)),
            value(_mm512_srli_epi16::<3>(codes)),
        ]
    }
}

impl PairDots for Iq1S {
    const BYTES: usize = 50;
    const TIMES: f32 = 0.125;
    const SUB: usize = 32;
    const EXCESS: i32 = 9;

    #[inline(always)]
    unsafe fn unpack([a, b]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let row = |block: *const u8| {
                let high = as_longs(block.wrapping_add(34));
                let codes = gathered::<11>(&GATHERED_IQ1, block.wrapping_add(2), high, &HIGH_IQ1_S);
                let values = eighths(codes, shifted(high, &BIT_15_AT_1));
                Row { values, scales: odd(shifted(high, &SCALES_AT_12), 7) }
            };
            [row(a), row(b)]
        }
    }
}

impl PairDots for Iq1M {
    const BYTES: usize = 56;
    const TIMES: f32 = 0.125;
    const SUB: usize = 16;
    const EXCESS: i32 = 9;

    #[inline(always)]
    unsafe fn unpack([a, b]: [*const u8; 2]) -> [Row; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let row = |block: *const u8| {
                let high = as_longs(block.wrapping_add(32));
                let codes = gathered::<11>(&GATHERED_IQ1, block, high, &HIGH_IQ1_M);
                let values = eighths(codes, shifted(high, &FOURTHS_AT_1));
                let scales = shifted(everywhere(block.wrapping_add(48)), &SCALES_IQ1_M);
                Row { values, scales: odd(scales, 7) }
            };
            [row(a), row(b)]
        }
    }

    #[inline(always)]
    unsafe fn scale(blocks: &[*const u8; ROWS]) -> __m128 {
        // SAFETY: the caller's contract.
        unsafe {
            let mut halves = 0;
            for (i, block) in blocks.iter().enumerate() {
                let all = block.wrapping_add(48).cast::<u64>().read_unaligned();
                // The four highest bits of each 16.
                let of = |i: usize| (all >> (16 * i + 12) & 15) << (4 * i);
                halves |= (of(0) | of(1) | of(2) | of(3)) << (16 * i);
            }
            let scale = _mm_cvtph_ps(_mm_cvtsi64_si128(halves.cast_signed()));
            _mm_mul_ps(scale, _mm_set1_ps(Self::TIMES))
        }
    }
}
