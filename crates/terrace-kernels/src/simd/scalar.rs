//! Vectors in plain Rust, which the compiler turns into whatever the machine has.

use super::Simd;
use crate::half::{bf16_to_f32, f16_to_f32};

#[derive(Clone, Copy)]
pub(crate) struct Scalar;

const LANES: usize = 8;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    std::array::from_fn(f)
}

impl Simd for Scalar {
    type F = [f32; LANES];
    const LANES: usize = LANES;
    const ROWS: usize = 2;
    const VALUE_ROWS: usize = 4;
    const CHUNKS: usize = 2;

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<Self::F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Self::F) {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<Self::F>().write_unaligned(value) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        let bits = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        each(|i| f16_to_f32(bits[i]))
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> Self::F {
        // SAFETY: the caller's contract.
        let bits = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        each(|i| bf16_to_f32(bits[i]))
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self::F {
        // SAFETY: the caller's contract.
        let bytes = unsafe { at.cast::<[i8; LANES]>().read_unaligned() };
        each(|i| f32::from(bytes[i]))
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] / b[i])
    }

    // `mul_add` would be a call into the mathematics library where there is no instruction for it.
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        each(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    // Adding 1.5 * 2^23 leaves no room for a fraction; exact for what `exp` gives it.
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        const SHIFT: f32 = 12_582_912.0;
        each(|i| (a[i] + SHIFT) - SHIFT)
    }

    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        each(|i| f32::from_bits(((a[i] as i32).wrapping_add(127) as u32) << 23))
    }

    #[inline(always)]
    unsafe fn zero_below(a: Self::F, by: Self::F, least: f32) -> Self::F {
        each(|i| if by[i] < least { 0.0 } else { a[i] })
    }

    #[inline(always)]
    unsafe fn add_mask(a: Self::F, b: Self::F) -> Self::F {
        each(|i| if b[i] == f32::NEG_INFINITY { b[i] } else { a[i] + b[i] })
    }

    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }

    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    unsafe fn store_sums<const ROWS: usize>(sums: &[[Self::F; 4]; ROWS], to: *mut f32, stride: usize) {
        for (row, sums) in sums.iter().enumerate() {
            for (i, &sum) in sums.iter().enumerate() {
                // SAFETY: the caller's contract.
                unsafe { *to.add(row * stride + i) = Self::sum(sum) };
            }
        }
    }

    #[inline(always)]
    unsafe fn unpack_nibbles(at: *const u8, values: &[i8; 16], to: *mut i8) {
        for i in 0..16 {
            // SAFETY: the caller's contract.
            unsafe {
                let byte = *at.add(i);
                *to.add(i) = values[usize::from(byte & 15)];
                *to.add(i + 16) = values[usize::from(byte >> 4)];
            }
        }
    }
}
