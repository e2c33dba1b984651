//! Tables of kernels for types with grids: codes, shifts of bits into bytes, and what bytes of a code and a sign stand
//! for. All are made from the grids at compile time.

use super::grid::OFFSET;
use crate::grids::{
    CODES_IQ1, CODES_IQ2, CODES_IQ3_S, CODES_IQ3_XXS, IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS,
};
use std::arch::x86_64::{__m512i, _mm512_load_si512};

/// 64 bytes of a constant.
#[repr(C, align(64))]
pub struct Bytes([u8; 64]);

impl Bytes {
    pub const fn new(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    #[inline(always)]
    pub fn load(&self) -> __m512i {
        // SAFETY: the machine has AVX-512 wherever these are used; they are aligned.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }
}

/// Codes of a grid by entry: 64 entries each, first their low bytes, then their high ones.
pub struct Codes<const PARTS: usize> {
    pub low: [Bytes; PARTS],
    pub high: [Bytes; PARTS],
}

impl<const PARTS: usize> Codes<PARTS> {
    const fn of<const N: usize>(grid: &[u16; N]) -> Self {
        let (mut low, mut high) = ([const { Bytes([0; 64]) }; PARTS], [const { Bytes([0; 64]) }; PARTS]);
        let mut i = 0;
        while i < N {
            [low[i / 64].0[i % 64], high[i / 64].0[i % 64]] = grid[i].to_le_bytes();
            i += 1;
        }
        Self { low, high }
    }
}

pub static CODES_OF_IQ2_XXS: Codes<4> = Codes::of(&IQ2_XXS);
pub static CODES_OF_IQ2_XS: Codes<8> = Codes::of(&IQ2_XS);
pub static CODES_OF_IQ3_XXS: Codes<4> = Codes::of(&IQ3_XXS);
pub static CODES_OF_IQ3_S: Codes<8> = Codes::of(&IQ3_S);
/// Codes that are gathered. Loads are of an entry and the one before or after it, so that there is one more at each end.
pub static GATHERED_IQ2_S: [u16; 1026] = gathered(&IQ2_S);
pub static GATHERED_IQ1: [u16; 2050] = gathered(&IQ1);

const fn gathered<const N: usize, const M: usize>(grid: &[u16; N]) -> [u16; M] {
    let mut codes = [0; M];
    let mut i = 0;
    while i < N {
        codes[i + 1] = grid[i];
        i += 1;
    }
    codes
}

/// Shifts of the bytes of words: `N` of them, of which number `i` begins at bit `first + i * next`, and each byte `step`
/// bits after the one before.
const fn shifts<const N: usize>(first: i32, next: i32, step: i32) -> [Bytes; N] {
    let mut all = [const { Bytes([0; 64]) }; N];
    let mut i = 0;
    while i < N * 64 {
        let (number, byte) = (i / 64, i as i32 % 64);
        let bit = first + number as i32 * next + byte % 4 * step;
        // Two words make the 64 bits that are shifted.
        all[number].0[byte as usize] = ((bit + byte / 4 % 2 * 32) & 63) as u8;
        i += 1;
    }
    all
}

/// The four codes of 2 bits in each byte of a word.
pub static PAIRS_OF_BITS: [Bytes; 4] = shifts(0, 8, 2);
/// The four codes of 4 bits in each half of a word.
pub static NIBBLES: [Bytes; 2] = shifts(0, 16, 4);
/// Each seven bits of a word.
pub static SEVENS: [Bytes; 1] = shifts(0, 0, 7);
/// Each four bits of a word, at bit 2 or 3 of bytes.
pub static SIGNS_AT_2: [Bytes; 8] = shifts(-2, 4, 1);
pub static SIGNS_AT_3: [Bytes; 8] = shifts(-3, 4, 1);
/// The same at bit 7.
pub static BITS_AT_7: [Bytes; 8] = shifts(-7, 4, 1);
/// Bit 3 of each nibble of a word, at bit 2 of all bytes.
pub static FOURTHS_AT_2: [Bytes; 8] = shifts(1, 4, 0);

/// What bytes of a code of `bits` bits and a sign stand for; higher bits do not count.
const fn values<const N: usize>(codes: [i8; N], bits: u32) -> Bytes {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        let code = i & ((1 << bits) - 1);
        let magnitude = if code < N { codes[code] } else { 0 };
        let value = if i >> bits & 1 == 1 { -magnitude } else { magnitude };
        bytes[i] = OFFSET.wrapping_add_signed(value);
        i += 1;
    }
    Bytes(bytes)
}

pub static VALUES_IQ2: Bytes = values(CODES_IQ2, 2);
pub static VALUES_IQ3_XXS: Bytes = values(CODES_IQ3_XXS, 3);
pub static VALUES_IQ3_S: Bytes = values(CODES_IQ3_S, 3);
/// Values of IQ1 in eighths, of which the sign takes one off.
pub static VALUES_IQ1: Bytes = {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        let value = if i & 3 < 3 { CODES_IQ1[i & 3] * 8 } else { 0 };
        bytes[i] = OFFSET.wrapping_add_signed(if i & 4 == 0 { value + 1 } else { value - 1 });
        i += 1;
    }
    Bytes(bytes)
};
