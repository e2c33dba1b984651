//! Vectors of AVX2, with FMA and F16C.

use super::Simd;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

impl Simd for Avx2 {
    type F = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 2;
    const VALUE_ROWS: usize = 4;
    const CHUNKS: usize = 2;

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Self::F) {
        // SAFETY: the caller's contract.
        unsafe { _mm256_storeu_ps(at, value) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()))))
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    unsafe fn zero_below(a: Self::F, by: Self::F, least: f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(by, _mm256_set1_ps(least)), a) }
    }

    #[inline(always)]
    unsafe fn add_mask(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            let hidden = _mm256_cmp_ps::<_CMP_EQ_OQ>(b, _mm256_set1_ps(f32::NEG_INFINITY));
            _mm256_blendv_ps(_mm256_add_ps(a, b), b, hidden)
        }
    }

    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { sum(a) }
    }

    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    unsafe fn store_sums<const ROWS: usize>(sums: &[[Self::F; 4]; ROWS], to: *mut f32, stride: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            for (row, &[a, b, c, d]) in sums.iter().enumerate() {
                let ab = _mm256_hadd_ps(a, b);
                let cd = _mm256_hadd_ps(c, d);
                let all = _mm256_hadd_ps(ab, cd);
                let sums = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all));
                _mm_storeu_ps(to.add(row * stride), sums);
            }
        }
    }

    #[inline(always)]
    unsafe fn unpack_nibbles(at: *const u8, values: &[i8; 16], to: *mut i8) {
        // SAFETY: the caller's contract.
        unsafe {
            let packed = _mm_loadu_si128(at.cast());
            let table = _mm_loadu_si128(values.as_ptr().cast());
            let low = _mm_set1_epi8(15);
            _mm_storeu_si128(to.cast(), _mm_shuffle_epi8(table, _mm_and_si128(packed, low)));
            let high = _mm_and_si128(_mm_srli_epi16::<4>(packed), low);
            _mm_storeu_si128(to.add(16).cast(), _mm_shuffle_epi8(table, high))
        }
    }
}

/// Sum of the lanes.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(super) unsafe fn sum(a: __m256) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}
