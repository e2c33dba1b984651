//! Rows side by side, with AVX2.

use super::superblocks::grid;
use super::{LANES, PanelBytes, PanelRange};
use crate::WeightType;
use std::arch::x86_64::*;

/// Rows in a vector.
pub(super) const HALF: usize = LANES / 2;

/// Sums of two products of signed bytes each, which fit in 16 bits: values may be -128, activations may not.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(super) unsafe fn signed_pairs(values: __m256i, input: __m256i) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe { _mm256_maddubs_epi16(_mm256_abs_epi8(values), _mm256_sign_epi8(input, values)) }
}

/// The rows of a panel, each as often as there are lanes for it: lanes after the last row repeat it.
///
/// # Safety
/// `weights` is valid for the panel's rows.
#[inline(always)]
pub(super) unsafe fn rows_at(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    first: usize,
) -> [*const u8; HALF] {
    let mut rows = [weights; HALF];
    for (lane, row) in rows.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        *row = unsafe { row.add((first + lane).min(part.count - 1) * stride) };
    }
    rows
}

/// Unpacks the bytes of a part of a panel; `table` is what nibbles stand for, where a type has a table.
///
/// # Safety
/// `weights` is valid for the panel's rows; the machine has AVX2.
#[inline(always)]
pub(super) unsafe fn bytes(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    table: [u8; 16],
    panel: &mut PanelBytes,
) {
    // SAFETY: the caller's contract; a chunk has room for whole vectors.
    unsafe {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        for first in (0..part.count).step_by(HALF) {
            let rows = rows_at(part, weights, stride, first);
            let to = panel[first / LANES].as_mut_ptr().cast::<u8>().add(first % LANES * 4);
            for i in (0..part.length).step_by(32) {
                let mut values_of = [_mm256_setzero_si256(); HALF];
                for (values_of, row) in values_of.iter_mut().zip(rows) {
                    *values_of = values(part.ty, row, part.from + i, table);
                }
                transpose(&mut values_of);
                for (four, values) in values_of.into_iter().enumerate() {
                    _mm256_storeu_si256(to.add((i / 4 + four) * 4 * LANES).cast(), values);
                }
            }
        }
    }
}

/// 32 unsigned values from `at` on, the number of a value of the row.
///
/// # Safety
/// `row` is valid for the row; the machine has AVX2.
#[inline(always)]
pub(super) unsafe fn values(ty: WeightType, row: *const u8, at: usize, table: __m256i) -> __m256i {
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let block = row.add(at / ty.block() * ty.block_bytes());
        let (sub, half, quarter) = (at % 256 / 32, at % 256 / 128, at % 128 / 32);
        match ty {
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Iq4Nl | WeightType::Mxfp4 => {
                _mm256_shuffle_epi8(table, nibbles(block.add(ty.block_bytes() - 16)))
            }
            WeightType::Iq4Xs => _mm256_shuffle_epi8(table, nibbles(block.add(8 + sub * 16))),
            WeightType::Q8_0 => _mm256_xor_si256(load(block.add(2)), _mm256_set1_epi8(-128)),
            WeightType::Q5_0 | WeightType::Q5_1 => {
                let low = block.add(ty.block_bytes() - 16);
                let fifth = bits(low.sub(4).cast::<i32>().read_unaligned());
                _mm256_or_si256(nibbles(low), _mm256_and_si256(fifth, _mm256_set1_epi8(16)))
            }
            WeightType::Q2K => field(block.add(16 + half * 32), quarter * 2, 3),
            WeightType::Q3K => {
                let low = field(block.add(32 + half * 32), quarter * 2, 3);
                _mm256_or_si256(low, _mm256_slli_epi16::<2>(field(block, sub, 1)))
            }
            WeightType::Q4K => field(block.add(16 + sub / 2 * 32), sub % 2 * 4, 15),
            WeightType::Q5K => {
                let low = field(block.add(48 + sub / 2 * 32), sub % 2 * 4, 15);
                _mm256_or_si256(low, _mm256_slli_epi16::<4>(field(block.add(16), sub, 1)))
            }
            WeightType::Q6K => {
                let low = field(block.add(half * 64 + quarter % 2 * 32), quarter / 2 * 4, 15);
                let high = field(block.add(128 + half * 32), quarter * 2, 3);
                _mm256_or_si256(low, _mm256_slli_epi16::<4>(high))
            }
            WeightType::F16 | WeightType::Bf16 => unreachable!("a type of bytes"),
            _ => {
                let (bytes, signs) = grid::weights(ty, block, sub);
                let [a, b, c, d] = bytes.map(u64::cast_signed);
                let negative = bits(signs.cast_signed());
                let bytes = _mm256_xor_si256(_mm256_set_epi64x(d, c, b, a), negative);
                _mm256_sub_epi8(bytes, negative)
            }
        }
    }
}

/// # Safety
/// 32 bytes can be read.
#[inline(always)]
unsafe fn load(at: *const u8) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// The low nibbles of 16 bytes, then the high ones.
///
/// # Safety
/// 16 bytes can be read.
#[inline(always)]
unsafe fn nibbles(at: *const u8) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let packed = _mm_loadu_si128(at.cast());
        let both = _mm256_set_m128i(_mm_srli_epi16::<4>(packed), packed);
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// The bits of each of 32 bytes that `mask` has, after `shift` bits.
///
/// # Safety
/// 32 bytes can be read.
#[inline(always)]
unsafe fn field(at: *const u8, shift: usize, mask: i8) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let shifted = _mm256_srl_epi16(load(at), _mm_cvtsi32_si128(shift as i32));
        _mm256_and_si256(shifted, _mm256_set1_epi8(mask))
    }
}

/// A byte of ones for each bit that is one.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn bits(bits: i32) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let low = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        let bytes = _mm256_set_m128i(_mm_add_epi8(low, _mm_set1_epi8(2)), low);
        let each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
        let ones = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), bytes), each);
        _mm256_cmpeq_epi8(ones, each)
    }
}

/// Transposes 8 vectors of 8 numbers of 32 bits.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(super) unsafe fn transpose(rows: &mut [__m256i; HALF]) {
    // SAFETY: the caller's contract.
    unsafe {
        for four in rows.chunks_exact_mut(4) {
            let (a, b) = (_mm256_unpacklo_epi32(four[0], four[1]), _mm256_unpackhi_epi32(four[0], four[1]));
            let (c, d) = (_mm256_unpacklo_epi32(four[2], four[3]), _mm256_unpackhi_epi32(four[2], four[3]));
            four[0] = _mm256_unpacklo_epi64(a, c);
            four[1] = _mm256_unpackhi_epi64(a, c);
            four[2] = _mm256_unpacklo_epi64(b, d);
            four[3] = _mm256_unpackhi_epi64(b, d);
        }
        // Vector `4 * i + j` has, in its half `p`, numbers `4 * p + j` of rows `4 * i` to `4 * i + 3`.
        let from = *rows;
        for j in 0..4 {
            rows[j] = _mm256_permute2x128_si256::<0x20>(from[j], from[4 + j]);
            rows[4 + j] = _mm256_permute2x128_si256::<0x31>(from[j], from[4 + j]);
        }
    }
}
