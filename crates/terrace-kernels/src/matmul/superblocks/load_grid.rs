//! Weights of types with grids as unsigned bytes, with the scales of their blocks, with permutations of bytes
//! (AVX-512 VBMI) and products of bits (GFNI).
//!
//! Grids of up to 512 entries are looked up in registers, 64 indices at once, of which each gives two bytes of codes.
//! Larger ones are gathered from memory. A shift of each byte by bits of its own then puts a code, and another a sign, into
//! each byte, which both together are an index of what they stand for.

use super::super::lanes::LaneBlocks;
use super::grid_tables::{
    BITS_AT_7, Bytes, CODES_OF_IQ2_XS, CODES_OF_IQ2_XXS, CODES_OF_IQ3_S, CODES_OF_IQ3_XXS, Codes,
    FOURTHS_AT_2, GATHERED_IQ1, GATHERED_IQ2_S, NIBBLES, PAIRS_OF_BITS, SEVENS, SIGNS_AT_2, SIGNS_AT_3,
    VALUES_IQ1, VALUES_IQ2, VALUES_IQ3_S, VALUES_IQ3_XXS,
};
use super::load::{Kept, Superblock, eight, offsets, store, store_floats};
use super::{BlockScales, OFFSETS};
use std::arch::x86_64::*;

pub(super) struct Iq2Xxs;
pub(super) struct Iq2Xs;
pub(super) struct Iq2S;
pub(super) struct Iq3Xxs;
pub(super) struct Iq3S;
pub(super) struct Iq1S;
pub(super) struct Iq1M;

/// Products with the bits of a byte, which give its bits from 0 to 6, or those from 1 to 7, and whether they are odd.
pub(super) const WITH_PARITY: i64 = bits([0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x7f]);
pub(super) const WITH_PARITY_FROM_1: i64 = bits([0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xfe]);

/// The bits whose sum each bit of a result is, from bit 0 on.
const fn bits(of: [u8; 8]) -> i64 {
    i64::from_be_bytes(of)
}

/// Eight signs from seven bits of each byte: an even number of them is negative.
#[inline(always)]
pub(super) unsafe fn with_parity(bits: __m512i, product: i64) -> __m512i {
    // SAFETY: the machine has AVX-512 and GFNI.
    unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(bits, _mm512_set1_epi64(product)) }
}

/// Shifts each byte's bits into place.
#[inline(always)]
pub(super) unsafe fn shifted(words: __m512i, by: &Bytes) -> __m512i {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe { _mm512_multishift_epi64_epi8(by.load(), words) }
}

/// The bits of `a` where those of `mask` are one, and of `b` elsewhere.
#[inline(always)]
pub(super) unsafe fn select(mask: i32, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the machine has AVX-512.
    unsafe { _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi32(mask), a, b) }
}

/// What codes in the low `BITS` bits of bytes, with signs in the next bit, stand for.
#[inline(always)]
unsafe fn signed<const BITS: u32>(codes: __m512i, signs: __m512i, values: &Bytes) -> __m512i {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let mask = 0x0101_0101 * ((1 << BITS) - 1);
        _mm512_permutexvar_epi8(select(mask, codes, signs), values.load())
    }
}

/// The bytes of 64 entries of a table; `high` has bits 7 and 8 of each index.
#[inline(always)]
unsafe fn look_up<const PARTS: usize>(
    table: &[Bytes; PARTS],
    index: __m512i,
    high: [__mmask64; 2],
) -> __m512i {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let of =
            |part: usize| _mm512_permutex2var_epi8(table[2 * part].load(), index, table[2 * part + 1].load());
        let half = |half: usize| _mm512_mask_blend_epi8(high[0], of(2 * half), of(2 * half + 1));
        if PARTS == 4 { half(0) } else { _mm512_mask_blend_epi8(high[1], half(0), half(1)) }
    }
}

/// The low and high bytes of codes of the entries that bytes stand for; bit 7 of the bytes of `eighth` is bit 8 of an
/// index.
#[inline(always)]
unsafe fn codes<const PARTS: usize>(table: &Codes<PARTS>, index: __m512i, eighth: __m512i) -> [__m512i; 2] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let high = [_mm512_movepi8_mask(index), _mm512_movepi8_mask(eighth)];
        [look_up(&table.low, index, high), look_up(&table.high, index, high)]
    }
}

/// 32 weights of IQ2: entry number `i` and its signs are in byte `order[i]` of words.
#[inline(always)]
unsafe fn of_pairs(codes: [__m512i; 2], signs: __m512i, order: [usize; 4]) -> [__m512i; 8] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let mut values = [_mm512_setzero_si512(); 8];
        for (i, value) in values.iter_mut().enumerate() {
            let byte = order[i / 2];
            let codes = shifted(codes[i % 2], &PAIRS_OF_BITS[byte]);
            *value = signed::<2>(codes, shifted(signs, &SIGNS_AT_2[2 * byte + i % 2]), &VALUES_IQ2);
        }
        values
    }
}

/// 16 weights of IQ3, half `half` of 32.
#[inline(always)]
unsafe fn of_nibbles([low, high]: [__m512i; 2], signs: __m512i, half: usize, values: &Bytes) -> [__m512i; 4] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        // Both bytes of an entry side by side: of entries 0 and 2, of 1 and 3.
        let codes = [
            select(0x00ff_00ff, low, _mm512_slli_epi16::<8>(high)),
            select(0x00ff_00ff, _mm512_srli_epi16::<8>(low), high),
        ];
        let value = |i: usize| {
            let codes = shifted(codes[i % 2], &NIBBLES[i / 2]);
            signed::<3>(codes, shifted(signs, &SIGNS_AT_3[4 * half + i]), values)
        };
        [value(0), value(1), value(2), value(3)]
    }
}

/// 8 weights whose codes are in the low half of words.
#[inline(always)]
unsafe fn of_half<const SIGNS: usize>(
    codes: __m512i,
    signs: [__m512i; SIGNS],
    values: &Bytes,
) -> [__m512i; 2] {
    // SAFETY: the machine has AVX-512 VBMI.
    unsafe {
        let value = |i: usize| signed::<2>(shifted(codes, &PAIRS_OF_BITS[i]), signs[i % SIGNS], values);
        [value(0), value(1)]
    }
}

/// Gathers the entries of indices in the low `BITS` bits of words.
///
/// # Safety
/// `table` has so many entries, and one more at each end; the machine has AVX-512.
#[inline(always)]
unsafe fn gather<const BITS: u32>(table: &[u16], index: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let index = _mm512_and_si512(index, _mm512_set1_epi32((1 << BITS) - 1));
        _mm512_i32gather_epi32::<2>(index, table.as_ptr().add(1).cast())
    }
}

/// Words shifted to the right, or to the left by negative numbers of bits.
#[inline(always)]
unsafe fn right(words: __m512i, by: i32) -> __m512i {
    // SAFETY: the machine has AVX-512.
    unsafe {
        let count = |by: i32| _mm_cvtsi32_si128(by);
        if by >= 0 { _mm512_srl_epi32(words, count(by)) } else { _mm512_sll_epi32(words, count(-by)) }
    }
}

/// Twice a number in bits of words, which are those of `mask` after shifting by `from`, and one more.
#[inline(always)]
unsafe fn odd(words: __m512i, from: i32, mask: i32) -> __m512i {
    // SAFETY: the machine has AVX-512.
    unsafe {
        let (mask, one) = (_mm512_set1_epi32(2 * mask), _mm512_set1_epi32(1));
        // (words & mask) | one
        _mm512_ternarylogic_epi32::<0xea>(right(words, from - 1), mask, one)
    }
}

/// Writes the scales of sub-blocks, which are those of `of`, and the blocks' floats times `times`.
#[inline(always)]
unsafe fn store_scales<const SUBS: usize>(
    to: &mut BlockScales,
    (half, times): (__m256i, f32),
    of: impl Fn(usize) -> __m512i,
) {
    // SAFETY: the machine has AVX-512; arrays of 16 numbers of 32 bits.
    unsafe {
        store_floats(&mut to.scale, _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(times)));
        for sub in 0..SUBS {
            store(to.subs[sub].as_mut_ptr(), of(sub));
        }
        offsets::<7>(to, SUBS);
    }
}

/// Parts of equal size, one after the other.
#[inline(always)]
fn flat<const PARTS: usize, const N: usize, const M: usize>(parts: [[__m512i; N]; PARTS]) -> [__m512i; M] {
    let mut all = [parts[0][0]; M];
    for (i, all) in all.iter_mut().enumerate() {
        *all = parts[i / N][i % N];
    }
    all
}

impl Superblock for Iq2Xxs {
    const BYTES: usize = 66;
    const SCALED: usize = 32;
    const SUMMED: usize = 32;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(_: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            let half = |half: usize| {
                let (index, last) = (kept.0[at / 16 + 2 * half], kept.0[at / 16 + 2 * half + 1]);
                let signs = with_parity(shifted(last, &SEVENS[0]), WITH_PARITY);
                of_pairs(codes(&CODES_OF_IQ2_XXS, index, index), signs, [0, 1, 2, 3])
            };
            flat([half(0), half(1)])
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, kept: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            kept.keep(0, eight(blocks, 2));
            kept.keep(8, eight(blocks, 34));
            store_scales::<8>(to, (blocks.first_half(), 0.125), |sub| odd(kept.0[2 * sub + 1], 28, 15));
        }
    }
}

impl Superblock for Iq2Xs {
    const BYTES: usize = 74;
    const SCALED: usize = 16;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, _: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            let [a, b, c, d] = blocks.words(2 + at / 4);
            let half = |first, second| {
                // The lower and the upper byte of the first and third, and of the second and fourth, of four numbers.
                let index = select(0x00ff_00ff, first, _mm512_slli_epi16::<8>(second));
                let upper = select(0x00ff_00ff, _mm512_srli_epi16::<8>(first), second);
                let eighth = _mm512_slli_epi16::<7>(upper);
                let signs = with_parity(upper, WITH_PARITY_FROM_1);
                of_pairs(codes(&CODES_OF_IQ2_XS, index, eighth), signs, [0, 2, 1, 3])
            };
            flat([half(a, b), half(c, d)])
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, _: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            let [_, _, a, b] = blocks.words(58);
            let of = |sub: usize| odd(if sub < 8 { a } else { b }, sub as i32 % 8 * 4, 15);
            store_scales::<16>(to, (blocks.first_half(), 0.125), of);
        }
    }
}

impl Superblock for Iq2S {
    const BYTES: usize = 82;
    const SCALED: usize = 16;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            if at.is_multiple_of(128) {
                kept.0[8..12].copy_from_slice(&blocks.words(2 + at / 8));
                kept.0[12..16].copy_from_slice(&blocks.words(34 + at / 8));
            }
            let half = |half: usize| {
                let sub = at / 32 + half;
                let (index, signs, high) = (kept.0[8 + sub % 4], kept.0[12 + sub % 4], kept.0[sub / 4]);
                let eight = |i: usize| {
                    let above = right(high, (sub % 4 * 8 + 2 * i) as i32 - 8);
                    let index = select(0xff, right(index, 8 * i as i32), above);
                    let codes = gather::<10>(&GATHERED_IQ2_S, index);
                    let signs = |j: usize| shifted(signs, &SIGNS_AT_2[2 * i + j]);
                    of_half(codes, [signs(0), signs(1)], &VALUES_IQ2)
                };
                flat::<4, 2, 8>([eight(0), eight(1), eight(2), eight(3)])
            };
            flat([half(0), half(1)])
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, kept: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            kept.0[..4].copy_from_slice(&blocks.words(66));
            let of = |sub: usize| odd(kept.0[2 + sub / 8], sub as i32 % 8 * 4, 15);
            store_scales::<16>(to, (blocks.first_half(), 0.125), of);
        }
    }
}

impl Superblock for Iq3Xxs {
    const BYTES: usize = 98;
    const SCALED: usize = 32;
    const SUMMED: usize = 32;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            let [a, b, c, d] = blocks.words(2 + at / 4);
            let half = |half: usize, first, second| {
                let signs = with_parity(shifted(kept.0[at / 32 + half], &SEVENS[0]), WITH_PARITY);
                let of = |i: usize, index| {
                    of_nibbles(codes(&CODES_OF_IQ3_XXS, index, index), signs, i, &VALUES_IQ3_XXS)
                };
                flat([of(0, first), of(1, second)])
            };
            flat::<2, 8, 16>([half(0, a, b), half(1, c, d)])
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, kept: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            kept.keep(0, eight(blocks, 66));
            store_scales::<8>(to, (blocks.first_half(), 0.25), |sub| odd(kept.0[sub], 28, 15));
        }
    }
}

impl Superblock for Iq3S {
    const BYTES: usize = 110;
    const SCALED: usize = 32;
    const SUMMED: usize = 32;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            let [a, b, c, d] = blocks.words(2 + at / 4);
            let half = |half: usize, first, second| {
                let sub = at / 32 + half;
                let of = |i: usize, index| {
                    let eighth = shifted(kept.0[8 + sub / 4], &BITS_AT_7[sub % 4 * 2 + i]);
                    of_nibbles(codes(&CODES_OF_IQ3_S, index, eighth), kept.0[sub], i, &VALUES_IQ3_S)
                };
                flat([of(0, first), of(1, second)])
            };
            flat::<2, 8, 16>([half(0, a, b), half(1, c, d)])
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, kept: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            kept.keep(0, eight(blocks, 74));
            [kept.0[8], kept.0[9], ..] = blocks.words(66);
            let scales = blocks.words(94)[3];
            store_scales::<8>(to, (blocks.first_half(), 1.0), |sub| odd(scales, sub as i32 * 4, 15));
        }
    }
}

impl Superblock for Iq1S {
    const BYTES: usize = 50;
    const SCALED: usize = 32;
    const SUMMED: usize = 32;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            if at.is_multiple_of(128) {
                kept.0[4..8].copy_from_slice(&blocks.words(2 + at / 8));
            }
            let half = |half: usize| {
                let sub = at / 32 + half;
                let (index, high) = (kept.0[4 + sub % 4], kept.0[sub / 2]);
                let first = sub as i32 % 2 * 16;
                // All ones where an eighth is taken off.
                let signs = _mm512_srai_epi32::<31>(right(high, first - 16));
                let eight = |i: usize| {
                    let above = right(high, first + 3 * i as i32 - 8);
                    let index = select(0xff, right(index, 8 * i as i32), above);
                    of_half(gather::<11>(&GATHERED_IQ1, index), [signs], &VALUES_IQ1)
                };
                flat::<4, 2, 8>([eight(0), eight(1), eight(2), eight(3)])
            };
            flat([half(0), half(1)])
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, kept: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            kept.0[..4].copy_from_slice(&blocks.words(34));
            let of = |sub: usize| odd(kept.0[sub / 2], sub as i32 % 2 * 16 + 12, 7);
            store_scales::<8>(to, (blocks.first_half(), 0.125), of);
        }
    }
}

impl Superblock for Iq1M {
    const BYTES: usize = 56;
    const SCALED: usize = 16;
    const SUMMED: usize = 16;
    const PAIRS: u8 = OFFSETS;

    #[inline(always)]
    unsafe fn words(blocks: impl LaneBlocks, at: usize, kept: &mut Kept) -> [__m512i; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            if at.is_multiple_of(128) {
                kept.0[4..8].copy_from_slice(&blocks.words(at / 8));
            }
            let half = |half: usize| {
                let sub = at / 32 + half;
                let (index, high) = (kept.0[4 + sub % 4], kept.0[sub / 2]);
                let eight = |i: usize| {
                    let number = sub % 2 * 4 + i;
                    let index = select(0xff, right(index, 8 * i as i32), right(high, 4 * number as i32 - 8));
                    let signs = shifted(high, &FOURTHS_AT_2[number]);
                    of_half(gather::<11>(&GATHERED_IQ1, index), [signs], &VALUES_IQ1)
                };
                flat::<4, 2, 8>([eight(0), eight(1), eight(2), eight(3)])
            };
            flat([half(0), half(1)])
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: impl LaneBlocks, to: &mut BlockScales, kept: &mut Kept) {
        // SAFETY: the caller's contract.
        unsafe {
            kept.0[..4].copy_from_slice(&blocks.words(32));
            let [_, _, a, b] = blocks.words(40);
            // The four highest bits of each half.
            let low = select(0xf, right(a, 12), right(a, 24));
            let high = select(0xf00, right(b, 4), right(b, 16));
            let bits = select(0xff, low, high);
            let of = |sub: usize| {
                let from = sub as i32 / 4 % 2 * 16 + sub as i32 % 4 * 3;
                odd(if sub < 8 { a } else { b }, from, 7)
            };
            store_scales::<16>(to, (_mm512_cvtepi32_epi16(bits), 0.125), of);
        }
    }
}
