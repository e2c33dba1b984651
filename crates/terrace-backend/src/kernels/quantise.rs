//! Conversion of activations to Q8_K, equal to ggml's bit by bit.
//!
//! ggml's `quantize_row_q8_K_ref` is scalar code. Each value becomes the nearest integer to its product
//! with a scale, ties to even. Whether a compiler has fused that product with the addition that rounds it
//! decides about one value in a million, so both are tried, on values that show it; if neither gives
//! ggml's bits, ggml converts.

use super::input::{BLOCK, Q8K};
use std::sync::OnceLock;
use terrace_ggml::DataType;
use terrace_ggml::cpu::Kernels;

/// Converts `blocks` blocks of floats.
pub type Quantise = unsafe fn(from: *const f32, to: *mut Q8K, blocks: usize);

/// The conversion, if this machine can run it and it rounds as ggml does.
pub fn quantise() -> Option<Quantise> {
    static KNOWN: OnceLock<Option<Quantise>> = OnceLock::new();
    *KNOWN.get_or_init(|| candidates().into_iter().flatten().find(|&quantise| agrees(quantise)))
}

#[cfg(target_arch = "x86_64")]
fn candidates() -> [Option<Quantise>; 2] {
    if super::has_instructions() { [Some(x86::rows::<true>), Some(x86::rows::<false>)] } else { [None; 2] }
}

#[cfg(not(target_arch = "x86_64"))]
fn candidates() -> [Option<Quantise>; 2] {
    [None; 2]
}

/// Bits of the largest value of a block and of another one, whose quotient a fused product and addition
/// round one way, and a product that is rounded by itself the other way. Found by trying millions.
const TELLING: [[u32; 2]; 8] = [
    [0x4040_0000, 0xc001_4285],
    [0x4040_0000, 0x4034_a953],
    [0x3fd9_999a, 0xbf92_7e97],
    [0x3f66_6666, 0x3ef4_e9d3],
    [0xc013_3333, 0x3fb1_55df],
    [0x40a3_3333, 0xc05b_bde2],
    [0x4130_0000, 0x412d_ebd7],
    [0xc0c9_999a, 0x4072_df59],
];

/// Returns true if a conversion has ggml's bits: on telling values, on pseudo-random ones of several magnitudes, on
/// zeros, and where the largest value occurs with both signs.
fn agrees(quantise: Quantise) -> bool {
    let Some(ggml) = Kernels::of(DataType::Q4_K).filter(|of| of.activation_type() == DataType::Q8_K) else {
        return false;
    };
    let mut floats = Vec::with_capacity((TELLING.len() + 40) * BLOCK);
    for (place, pair) in TELLING.into_iter().enumerate() {
        let start = floats.len();
        floats.resize(start + BLOCK, 0.0);
        floats[start + 17 * place] = f32::from_bits(pair[0]);
        floats[start + BLOCK - 1 - place] = f32::from_bits(pair[1]);
    }
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for block in 0..32 {
        let scale = 2f32.powi(block - 16);
        floats.extend((0..BLOCK).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
        }));
    }
    floats.extend([0.0; BLOCK]);
    for signs in [[1.0, -1.0], [-1.0, 1.0]] {
        let start = floats.len();
        floats.extend((0..BLOCK).map(|i| i as f32 / 999.0));
        (floats[start + 100], floats[start + 90 + 64]) = (signs[0], signs[1]);
    }
    let blocks = floats.len() / BLOCK;
    let (mut ours, mut theirs) = (vec![Q8K::ZERO; blocks], vec![Q8K::ZERO; blocks]);
    // SAFETY: the vectors hold `blocks` blocks; Q8K is ggml's block of activations.
    unsafe {
        quantise(floats.as_ptr(), ours.as_mut_ptr(), blocks);
        ggml.convert(floats.as_ptr(), theirs.as_mut_ptr().cast(), blocks * BLOCK);
    }
    ours.iter().zip(&theirs).all(|(ours, theirs)| ours.has_bits_of(theirs))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, Q8K};
    use std::arch::x86_64::{
        __m512, __m512i, _CMP_EQ_OQ, _CMP_GT_OQ, _mm_storeu_si64, _mm_storeu_si128, _mm256_castsi256_si128,
        _mm512_abs_ps, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_castps_si512,
        _mm512_cmp_ps_mask, _mm512_cvtepi32_epi8, _mm512_cvtepi32_epi16, _mm512_dpbusd_epi32,
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_mov_ps,
        _mm512_maskz_compress_epi32, _mm512_min_epi32, _mm512_mul_ps, _mm512_reduce_max_ps, _mm512_set1_epi8,
        _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_epi32,
        _mm512_sub_epi32,
    };

    /// Values of a register.
    const LANES: usize = 16;
    /// Adding this rounds a small float to the nearest integer, in its lowest bits (ggml's `nearest_int`).
    const ROUND: f32 = 12_582_912.0;

    /// # Safety
    /// The machine has the instructions; `from` is valid for `blocks * BLOCK` floats, `to` for `blocks`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub unsafe fn rows<const FUSED: bool>(from: *const f32, to: *mut Q8K, blocks: usize) {
        for block in 0..blocks {
            // SAFETY: the caller's contract.
            unsafe { one::<FUSED>(from.add(block * BLOCK), &mut *to.add(block)) };
        }
    }

    /// # Safety
    /// As [`rows`], for one block.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn one<const FUSED: bool>(from: *const f32, to: &mut Q8K) {
        // SAFETY: the caller's contract.
        let values: [__m512; BLOCK / LANES] =
            std::array::from_fn(|i| unsafe { _mm512_loadu_ps(from.add(i * LANES)) });
        let mut most = _mm512_setzero_ps();
        for value in values {
            let size = _mm512_abs_ps(value);
            // As in scalar code, what is no number is never larger.
            most = _mm512_mask_mov_ps(most, _mm512_cmp_ps_mask::<_CMP_GT_OQ>(size, most), size);
        }
        let largest = _mm512_reduce_max_ps(most);
        if largest == 0.0 {
            *to = Q8K::ZERO;
            return;
        }
        // The sign is that of the first one of this size.
        let at = values.iter().enumerate().find_map(|(i, &value)| {
            let equal = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(_mm512_abs_ps(value), _mm512_set1_ps(largest));
            (equal != 0).then(|| i * LANES + equal.trailing_zeros() as usize)
        });
        // SAFETY: an index into the block.
        let scale = -127.0 / unsafe { *from.add(at.unwrap_or(0)) };
        for (i, value) in values.into_iter().enumerate() {
            let (scale, round) = (_mm512_set1_ps(scale), _mm512_set1_ps(ROUND));
            let rounded = if FUSED {
                _mm512_fmadd_ps(scale, value, round)
            } else {
                _mm512_add_ps(_mm512_mul_ps(scale, value), round)
            };
            let low = _mm512_and_si512(_mm512_castps_si512(rounded), _mm512_set1_epi32(0x007f_ffff));
            let integer = _mm512_sub_epi32(low, _mm512_set1_epi32(0x0040_0000));
            let byte = _mm512_cvtepi32_epi8(_mm512_min_epi32(integer, _mm512_set1_epi32(127)));
            // SAFETY: 16 bytes of the block's 256.
            unsafe { _mm_storeu_si128(to.qs.as_mut_ptr().add(i * LANES).cast(), byte) };
        }
        for quarter in 0..4 {
            // SAFETY: 64 bytes of the block's 256, written above, and 4 of its 16 sums.
            unsafe {
                let bytes = _mm512_loadu_si512(to.qs.as_ptr().add(quarter * 64).cast());
                _mm_storeu_si64(to.bsums.as_mut_ptr().add(quarter * 4).cast(), sums_of_16(bytes));
            }
        }
        to.d = 1.0 / scale;
    }

    /// The sums of each 16 of 64 bytes, in 16 bits.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn sums_of_16(bytes: __m512i) -> std::arch::x86_64::__m128i {
        let fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
        let eights = _mm512_add_epi32(fours, _mm512_shuffle_epi32::<0b10_11_00_01>(fours));
        let all = _mm512_add_epi32(eights, _mm512_shuffle_epi32::<0b01_00_11_10>(eights));
        let packed = _mm512_maskz_compress_epi32(0b0001_0001_0001_0001, all);
        _mm256_castsi256_si128(_mm512_cvtepi32_epi16(packed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_conversions_has_ggmls_bits_and_the_other_one_not() {
        let agreeing = candidates().into_iter().flatten().filter(|&quantise| agrees(quantise)).count();
        assert_eq!(agreeing, usize::from(candidates()[0].is_some()), "telling values tell them apart");
    }
}
