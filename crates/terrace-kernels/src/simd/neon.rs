//! Vectors of NEON.

use super::Simd;
use std::arch::aarch64::*;

#[derive(Clone, Copy)]
pub(crate) struct Neon;

impl Simd for Neon {
    type F = float32x4_t;
    const LANES: usize = 4;
    const ROWS: usize = 4;
    const VALUE_ROWS: usize = 8;
    const CHUNKS: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vdupq_n_f32(value) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vld1q_f32(at) }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Self::F) {
        // SAFETY: the caller's contract.
        unsafe { vst1q_f32(at, value) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            let bytes = vcreate_s8(u64::from(at.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vaddq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vsubq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vmulq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vdivq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vfmaq_f32(c, a, b) }
    }

    // The processor's own maximum is no number if one operand is none.
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
    }

    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vbslq_f32(vcltq_f32(a, b), a, b) }
    }

    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vrndnq_f32(a) }
    }

    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            let exponent = vaddq_s32(vcvtq_s32_f32(a), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent))
        }
    }

    #[inline(always)]
    unsafe fn zero_below(a: Self::F, by: Self::F, least: f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe {
            let below = vcltq_f32(by, vdupq_n_f32(least));
            vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), below))
        }
    }

    #[inline(always)]
    unsafe fn add_mask(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { vbslq_f32(vceqq_f32(b, vdupq_n_f32(f32::NEG_INFINITY)), b, vaddq_f32(a, b)) }
    }

    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { vaddvq_f32(a) }
    }

    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { vmaxnmvq_f32(a) }
    }

    #[inline(always)]
    unsafe fn store_sums<const ROWS: usize>(sums: &[[Self::F; 4]; ROWS], to: *mut f32, stride: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            for (row, &[a, b, c, d]) in sums.iter().enumerate() {
                vst1q_f32(to.add(row * stride), vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
            }
        }
    }

    #[inline(always)]
    unsafe fn unpack_nibbles(at: *const u8, values: &[i8; 16], to: *mut i8) {
        // SAFETY: the caller's contract.
        unsafe {
            let (packed, table) = (vld1q_u8(at), vld1q_s8(values.as_ptr()));
            vst1q_s8(to, vqtbl1q_s8(table, vandq_u8(packed, vdupq_n_u8(15))));
            vst1q_s8(to.add(16), vqtbl1q_s8(table, vshrq_n_u8::<4>(packed)));
        }
    }
}
