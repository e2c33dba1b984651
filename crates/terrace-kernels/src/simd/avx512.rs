//! Vectors of AVX-512.

use super::Simd;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

impl Simd for Avx512 {
    type F = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 4;
    const VALUE_ROWS: usize = 8;
    const CHUNKS: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Self::F) {
        // SAFETY: the caller's contract.
        unsafe { _mm512_storeu_ps(at, value) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()))))
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_scalef_ps(_mm512_set1_ps(1.0), a) }
    }

    #[inline(always)]
    unsafe fn zero_below(a: Self::F, by: Self::F, least: f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(by, _mm512_set1_ps(least)), a) }
    }

    #[inline(always)]
    unsafe fn add_mask(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            let shown = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(b, _mm512_set1_ps(f32::NEG_INFINITY));
            _mm512_mask_add_ps(b, shown, a, b)
        }
    }

    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            super::avx2::sum(half)
        }
    }

    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    unsafe fn store_sums<const ROWS: usize>(sums: &[[Self::F; 4]; ROWS], to: *mut f32, stride: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            let zero = [_mm512_setzero_ps(); 4];
            let first = even_and_odd(parts(&sums[0]), parts(if ROWS > 1 { &sums[1] } else { &zero }));
            let second = if ROWS > 2 {
                even_and_odd(parts(&sums[2]), parts(if ROWS > 3 { &sums[3] } else { &zero }))
            } else {
                _mm512_setzero_ps()
            };
            let all = even_and_odd(first, second);
            _mm_storeu_ps(to, _mm512_castps512_ps128(all));
            if ROWS > 1 {
                _mm_storeu_ps(to.add(stride), _mm512_extractf32x4_ps::<1>(all));
            }
            if ROWS > 2 {
                _mm_storeu_ps(to.add(2 * stride), _mm512_extractf32x4_ps::<2>(all));
            }
            if ROWS > 3 {
                _mm_storeu_ps(to.add(3 * stride), _mm512_extractf32x4_ps::<3>(all));
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

/// In each 128-bit part: the four vectors' sums of that part.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn parts(&[a, b, c, d]: &[__m512; 4]) -> __m512 {
    // SAFETY: the caller's contract.
    unsafe {
        let ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
        let cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
        let (low, high) = (_mm512_unpacklo_pd(ab, cd), _mm512_unpackhi_pd(ab, cd));
        _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
    }
}

/// The even 128-bit parts of both, plus the odd ones.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn even_and_odd(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller's contract.
    unsafe {
        let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
        _mm512_add_ps(even, _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
    }
}

/// Transposes 16 vectors of 32-bit numbers.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(crate) unsafe fn transpose(rows: &mut [__m512i; 16]) {
    // SAFETY: the caller's contract.
    unsafe {
        // In each 128-bit part, four rows by four.
        for group in [0, 4, 8, 12] {
            let (a, b, c, d) = (rows[group], rows[group + 1], rows[group + 2], rows[group + 3]);
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            rows[group] = _mm512_unpacklo_epi64(ab, cd);
            rows[group + 1] = _mm512_unpackhi_epi64(ab, cd);
            let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            rows[group + 2] = _mm512_unpacklo_epi64(ab, cd);
            rows[group + 3] = _mm512_unpackhi_epi64(ab, cd);
        }
        // And the parts, groups by columns.
        for column in 0..4 {
            let (a, b, c, d) = (rows[column], rows[4 + column], rows[8 + column], rows[12 + column]);
            let (ab, cd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d));
            rows[column] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
            rows[8 + column] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
            let (ab, cd) = (_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d));
            rows[4 + column] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
            rows[12 + column] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
        }
    }
}
