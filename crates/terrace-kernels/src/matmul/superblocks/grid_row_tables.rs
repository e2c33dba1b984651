//! Tables of kernels that multiply types with grids a row at a time: places of bits, and what codes and signs stand for.

use super::grid::OFFSET;
use super::grid_tables::Bytes;
use crate::grids::{CODES_IQ2, CODES_IQ3_S, CODES_IQ3_XXS};

/// Shifts of the bytes of words, which begin with bit `first[i]` for word `i` of 64 bits, and `next` bits later in each of
/// these. Shifts are those of byte `byte` alone, and other bytes have any bits.
const fn shifts_of_words(first: [i32; 2], next: i32, byte: usize) -> Bytes {
    let mut bytes = [0; 64];
    let mut word = 0;
    while word < 16 {
        bytes[word * 4 + byte] = (first[word % 2] + word as i32 / 2 * next) as u8 & 63;
        word += 1;
    }
    Bytes::new(bytes)
}

/// Shifts of both bytes of numbers of 16 bits, which begin with bit `first + i * next` for number `i` of 64 bits.
const fn shifts_of_halves(first: i32, next: i32) -> Bytes {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = (first + i as i32 % 8 / 2 * next) as u8 & 63;
        i += 1;
    }
    Bytes::new(bytes)
}

/// Each seven bits from bit 0, or bit 32, on.
pub static SEVENS_FROM_0: Bytes = shifts_of_halves(0, 7);
pub static SEVENS_FROM_32: Bytes = shifts_of_halves(32, 7);
/// The last bit of each nibble, and bit 15, at bit 1.
pub static FOURTHS_AT_1: Bytes = shifts_of_halves(2, 4);
pub static BIT_15_AT_1: Bytes = shifts_of_halves(14, 0);

/// The higher bits of indices of 8 weights, as the second byte of words: of the even ones, and of the odd ones.
pub static HIGH_IQ2_S: [Bytes; 2] = [shifts_of_words([0, 4], 8, 1), shifts_of_words([2, 6], 8, 1)];
pub static HIGH_IQ1_S: [Bytes; 2] = [shifts_of_words([0, 6], 0, 1), shifts_of_words([3, 9], 0, 1)];
pub static HIGH_IQ1_M: [Bytes; 2] = [shifts_of_words([0, 8], 0, 1), shifts_of_words([4, 12], 0, 1)];

/// Scales at bit 1 of words: of 16 sub-blocks of 4 bits, of 8 sub-blocks of 4 bits, from bits 12 and 60 of 64 bits on.
pub static SCALES_OF_16: Bytes = shifts_of_words([-1, 3], 8, 0);
pub static SCALES_OF_8: Bytes = shifts_of_words([-1, -1], 4, 0);
pub static SCALES_AT_12: Bytes = shifts_of_words([11, 11], 0, 0);
pub static SCALES_AT_60: Bytes = shifts_of_words([59, 59], 0, 0);
/// The same of four numbers of 3 bits in each 16.
pub static SCALES_IQ1_M: Bytes = {
    let mut bytes = [0; 64];
    let mut word = 0;
    while word < 16 {
        bytes[word * 4] = (word as i32 / 4 * 16 + word as i32 % 4 * 3 - 1) as u8 & 63;
        word += 1;
    }
    Bytes::new(bytes)
};

/// The values of bytes with a code of `bits` bits from bit `at` on and a sign at bit `sign`; other bits do not count.
const fn values<const N: usize>(codes: [i8; N], (at, bits): (u32, u32), sign: u32) -> Bytes {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        let code = i >> at & ((1 << bits) - 1);
        let magnitude = if code < N { codes[code] } else { 0 };
        let value = if i >> sign & 1 == 1 { -magnitude } else { magnitude };
        bytes[i] = OFFSET.wrapping_add_signed(value);
        i += 1;
    }
    Bytes::new(bytes)
}

/// For each of four codes in a byte: where they and their signs are once these are in one byte.
pub static VALUES_IQ2: [Bytes; 4] = [
    values(CODES_IQ2, (0, 2), 2),
    values(CODES_IQ2, (2, 2), 1),
    values(CODES_IQ2, (4, 2), 2),
    values(CODES_IQ2, (4, 2), 3),
];
pub static VALUES_IQ3_XXS: [Bytes; 4] = of_nibbles(CODES_IQ3_XXS);
pub static VALUES_IQ3_S: [Bytes; 4] = of_nibbles(CODES_IQ3_S);

const fn of_nibbles(codes: [i8; 8]) -> [Bytes; 4] {
    [values(codes, (0, 3), 3), values(codes, (0, 3), 4), values(codes, (0, 3), 5), values(codes, (0, 3), 3)]
}
