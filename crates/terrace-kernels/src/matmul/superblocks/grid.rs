//! Weights that indices into a grid stand for: IQ1, IQ2 and IQ3, in plain Rust.
//!
//! A block of these types has a float for a scale, odd multiples of an eighth, a quarter or one of it for sub-blocks, and
//! indices of 8 or 4 magnitudes with their signs. IQ1 has an eighth that is added or taken off instead of signs; its
//! weights are counted in eighths, so that all are integers.

use super::SUBS;
use crate::WeightType;
use crate::grids::{
    CODES_IQ1, CODES_IQ2, CODES_IQ3_S, CODES_IQ3_XXS, IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS,
};
use crate::half::f16_to_f32;
use std::array::from_fn;

/// Excess of unpacked bytes.
pub(super) const OFFSET: u8 = 128;

/// Bytes of grids of 8 weights, [`OFFSET`] too large.
static BYTES_IQ1: [u64; 2048] = eights(&IQ1, CODES_IQ1, 8);
static BYTES_IQ2_XXS: [u64; 256] = eights(&IQ2_XXS, CODES_IQ2, 1);
static BYTES_IQ2_XS: [u64; 512] = eights(&IQ2_XS, CODES_IQ2, 1);
static BYTES_IQ2_S: [u64; 1024] = eights(&IQ2_S, CODES_IQ2, 1);
/// Those of 4 weights.
static BYTES_IQ3_XXS: [u32; 256] = fours(&IQ3_XXS, CODES_IQ3_XXS);
static BYTES_IQ3_S: [u32; 512] = fours(&IQ3_S, CODES_IQ3_S);

/// The bytes of entries of 8 codes, `times` what a code stands for.
const fn eights<const N: usize>(grid: &[u16; N], codes: [i8; 3], times: i8) -> [u64; N] {
    let mut bytes = [0; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 8 {
            let value = codes[(grid[i] >> (2 * j) & 3) as usize] * times;
            bytes[i] |= (OFFSET.wrapping_add_signed(value) as u64) << (8 * j);
            j += 1;
        }
        i += 1;
    }
    bytes
}

/// The bytes of entries of 4 codes.
const fn fours<const N: usize>(grid: &[u16; N], codes: [i8; 8]) -> [u32; N] {
    let mut bytes = [0; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 4 {
            let value = codes[(grid[i] >> (4 * j) & 7) as usize];
            bytes[i] |= (OFFSET.wrapping_add_signed(value) as u32) << (8 * j);
            j += 1;
        }
        i += 1;
    }
    bytes
}

/// Eight signs of seven bits: an even number of them is negative.
static SIGNS: [u8; 128] = {
    let mut signs = [0; 128];
    let mut i = 0;
    while i < 128 {
        signs[i] = i as u8 | ((i as u8).count_ones() as u8 & 1) << 7;
        i += 1;
    }
    signs
};

/// 32 weights: bytes that are [`OFFSET`] too large, of which those whose bit of the second number is one are negative.
pub(in super::super) type Signed = ([u64; 4], u32);

/// The weights of sub-block number `sub` of 32.
///
/// # Safety
/// `block` is valid for the block.
#[inline(always)]
pub(in super::super) unsafe fn weights(ty: WeightType, block: *const u8, sub: usize) -> Signed {
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let byte = |at: usize| usize::from(block.add(at).read());
        let half = |at: usize| block.add(at).cast::<u16>().read_unaligned();
        let word = |at: usize| block.add(at).cast::<u32>().read_unaligned();
        match ty {
            WeightType::Iq2Xxs => {
                let indices = 2 + 8 * sub;
                (from_fn(|i| BYTES_IQ2_XXS[byte(indices + i)]), signs_of(word(indices + 4)))
            }
            WeightType::Iq2Xs => {
                let index = |i: usize| half(2 + 8 * sub + 2 * i);
                let signs = from_fn(|i| SIGNS[usize::from(index(i) >> 9)]);
                (from_fn(|i| BYTES_IQ2_XS[usize::from(index(i) & 511)]), u32::from_le_bytes(signs))
            }
            WeightType::Iq2S => {
                let index = |i: usize| byte(2 + 4 * sub + i) | (byte(66 + sub) >> (2 * i) & 3) << 8;
                (from_fn(|i| BYTES_IQ2_S[index(i)]), word(34 + 4 * sub))
            }
            WeightType::Iq3Xxs => {
                let four = |i: usize| u64::from(BYTES_IQ3_XXS[byte(2 + 8 * sub + i)]);
                (from_fn(|i| four(2 * i) | four(2 * i + 1) << 32), signs_of(word(66 + 4 * sub)))
            }
            WeightType::Iq3S => {
                let index = |i: usize| byte(2 + 8 * sub + i) | (byte(66 + sub) >> i & 1) << 8;
                let four = |i: usize| u64::from(BYTES_IQ3_S[index(i)]);
                (from_fn(|i| four(2 * i) | four(2 * i + 1) << 32), word(74 + 4 * sub))
            }
            WeightType::Iq1S => {
                let high = usize::from(half(34 + 2 * sub));
                let index = |i: usize| byte(2 + 4 * sub + i) | (high >> (3 * i) & 7) << 8;
                (from_fn(|i| with_eighth(BYTES_IQ1[index(i)], high >> 15)), 0)
            }
            WeightType::Iq1M => {
                let high = usize::from(half(32 + 2 * sub));
                let index = |i: usize| byte(4 * sub + i) | (high >> (4 * i) & 7) << 8;
                (from_fn(|i| with_eighth(BYTES_IQ1[index(i)], high >> (4 * i + 3) & 1)), 0)
            }
            _ => unreachable!("a type with a grid"),
        }
    }
}

/// The signs of 32 weights, seven bits of each eight.
#[inline(always)]
fn signs_of(bits: u32) -> u32 {
    u32::from_le_bytes(from_fn(|i| SIGNS[(bits >> (7 * i) & 127) as usize]))
}

/// Bytes of IQ1, with an eighth that is added or, if `negative` is 1, taken off.
#[inline(always)]
const fn with_eighth(bytes: u64, negative: usize) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // No byte overflows: they are `OFFSET` more than -8 to 8.
    if negative == 0 { bytes + ONES } else { bytes - ONES }
}

/// Reads a block's scales: returns the float that multiplies what `subs` gets.
///
/// # Safety
/// `block` is valid for the block.
pub(super) unsafe fn scales(ty: WeightType, block: *const u8, subs: &mut [i16; SUBS]) -> f32 {
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let byte = |at: usize| *block.add(at);
        let half = |at: usize| block.add(at).cast::<u16>().read_unaligned();
        let odd = |number: u8| 2 * i16::from(number) + 1;
        let scale = f16_to_f32(half(0));
        match ty {
            WeightType::Iq2Xxs => {
                subs[..8].iter_mut().enumerate().for_each(|(i, sub)| *sub = odd(byte(9 + 8 * i) >> 4));
                scale / 8.0
            }
            WeightType::Iq2Xs | WeightType::Iq2S => {
                let last = ty.block_bytes() - 8;
                for (i, sub) in subs.iter_mut().enumerate() {
                    *sub = odd(byte(last + i / 2) >> (i % 2 * 4) & 15);
                }
                scale / 8.0
            }
            WeightType::Iq3Xxs => {
                subs[..8].iter_mut().enumerate().for_each(|(i, sub)| *sub = odd(byte(69 + 4 * i) >> 4));
                scale / 4.0
            }
            WeightType::Iq3S => {
                for (i, sub) in subs[..8].iter_mut().enumerate() {
                    *sub = odd(byte(106 + i / 2) >> (i % 2 * 4) & 15);
                }
                scale
            }
            WeightType::Iq1S => {
                let sub_of = |i: usize| odd((half(34 + 2 * i) >> 12 & 7) as u8);
                subs[..8].iter_mut().enumerate().for_each(|(i, sub)| *sub = sub_of(i));
                scale / 8.0
            }
            WeightType::Iq1M => {
                let four = |i: usize| half(48 + 2 * i);
                let sub_of = |i: usize| odd((four(i / 4) >> (i % 4 * 3) & 7) as u8);
                subs.iter_mut().enumerate().for_each(|(i, sub)| *sub = sub_of(i));
                // Its 16 bits are the highest four of each four scales.
                f16_to_f32((0..4).fold(0, |bits, i| bits | four(i) >> 12 << (4 * i))) / 8.0
            }
            _ => unreachable!("a type with a grid"),
        }
    }
}
