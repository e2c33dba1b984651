//! Scales of blocks of single rows of K-quants and IQ4_XS, with AVX2.

use super::load_rows::floats;
use crate::WeightType;
use std::arch::x86_64::*;

/// A block's integers.
pub(super) struct Scales {
    /// Of each 128 values: the scales of their sub-blocks, as numbers of 16 bits, twice.
    pub subs: [__m256i; 2],
    /// Factors of the sums of activations.
    pub pairs: __m256i,
}

/// Numbers of 16 bits, eight for each 128 values.
#[inline(always)]
unsafe fn halves(subs: __m256i) -> [__m256i; 2] {
    // SAFETY: the machine has AVX2.
    unsafe { [_mm256_permute2x128_si256::<0x00>(subs, subs), _mm256_permute2x128_si256::<0x11>(subs, subs)] }
}

/// Numbers of 16 bits, four for each 128 values.
#[inline(always)]
unsafe fn quarters(subs: __m128i) -> [__m256i; 2] {
    // SAFETY: the machine has AVX2.
    unsafe {
        let all = _mm256_broadcastsi128_si256(subs);
        [all, _mm256_bsrli_epi128::<8>(all)]
    }
}

/// # Safety
/// The block is there; the machine has AVX2.
#[inline(always)]
pub(super) unsafe fn scales(ty: WeightType, block: *const u8) -> Scales {
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let word = |at: usize| block.wrapping_add(at).cast::<u32>().read_unaligned();
        let words = |a: u32, b: u32, c: u32, d: u32| {
            _mm_setr_epi32(a.cast_signed(), b.cast_signed(), c.cast_signed(), d.cast_signed())
        };
        let (four, two) = (0x0f0f_0f0f, 0x0303_0303);
        match ty {
            WeightType::Q2K => {
                let both = _mm256_cvtepu8_epi16(_mm_loadu_si128(block.cast()));
                let subs = _mm256_and_si256(both, _mm256_set1_epi16(15));
                Scales { subs: halves(subs), pairs: _mm256_srli_epi16::<4>(both) }
            }
            WeightType::Q3K => {
                let (a, b, c) = (word(96), word(100), word(104));
                let six = |low: u32, high: u32| low & four | (high & two) << 4;
                let subs = words(six(a, c), six(b, c >> 2), six(a >> 4, c >> 4), six(b >> 4, c >> 6));
                let subs = _mm256_cvtepi8_epi16(_mm_sub_epi8(subs, _mm_set1_epi8(32)));
                Scales { subs: halves(subs), pairs: _mm256_mullo_epi16(subs, _mm256_set1_epi16(-4)) }
            }
            WeightType::Q4K | WeightType::Q5K => {
                let (a, b, c) = (word(4), word(8), word(12));
                let (six, above) = (0x3f3f_3f3f, 0x3030_3030);
                let subs = words(a & six, c & four | a >> 2 & above, b & six, c >> 4 & four | b >> 2 & above);
                let both = _mm256_cvtepu8_epi16(subs);
                let minima = _mm256_zextsi128_si256(_mm256_extracti128_si256::<1>(both));
                Scales { subs: quarters(_mm256_castsi256_si128(both)), pairs: minima }
            }
            WeightType::Q6K => {
                let subs = _mm256_cvtepi8_epi16(_mm_loadu_si128(block.wrapping_add(192).cast()));
                Scales { subs: halves(subs), pairs: _mm256_mullo_epi16(subs, _mm256_set1_epi16(-32)) }
            }
            _ => {
                let places = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
                let low = _mm256_srlv_epi32(_mm256_set1_epi32(word(4).cast_signed()), places);
                let high = _mm256_srli_epi32::<1>(places);
                let high = _mm256_srlv_epi32(_mm256_set1_epi32((word(0) >> 16).cast_signed()), high);
                let low = _mm256_and_si256(low, _mm256_set1_epi32(15));
                let high = _mm256_slli_epi32::<4>(_mm256_and_si256(high, _mm256_set1_epi32(3)));
                let subs = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
                let subs = _mm_packs_epi32(_mm256_castsi256_si128(subs), _mm256_extracti128_si256::<1>(subs));
                Scales { subs: quarters(subs), pairs: _mm256_setzero_si256() }
            }
        }
    }
}

/// The floats that the sums of four blocks are multiplied with, and those of their minima.
///
/// # Safety
/// The blocks are there; the machine has F16C.
#[inline(always)]
pub(super) unsafe fn floats_of(ty: WeightType, blocks: &[*const u8; 4]) -> [__m128; 2] {
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let zero = _mm_setzero_ps();
        match ty {
            WeightType::Q2K => [floats(blocks, 80), floats(blocks, 82)],
            WeightType::Q3K => [floats(blocks, 108), zero],
            WeightType::Q4K | WeightType::Q5K => [floats(blocks, 0), floats(blocks, 2)],
            WeightType::Q6K => [floats(blocks, 208), zero],
            _ => [floats(blocks, 0), zero],
        }
    }
}
