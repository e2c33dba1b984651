//! The vector operations that kernels are written against.
//!
//! A kernel is a generic function over [`Simd`], always inlined into an entry function that enables the instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod exp;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use exp::{exp, tanh};
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use scalar::Scalar;

/// An array of vectors, one for each index. [`std::array::from_fn`] and `map` are functions of their own, as closures are, which
/// have the instructions of the whole program only: where kernels use more than these, they call what should be inlined.
#[cfg(target_arch = "x86_64")]
macro_rules! array_of {
    ($count:expr, $i:ident => $value:expr) => {{
        // SAFETY: vectors of any bytes.
        #[allow(unused_unsafe, reason = "within functions that are unsafe and those that are not")]
        let mut all: [_; $count] = unsafe { std::mem::zeroed() };
        let mut $i = 0;
        while $i < $count {
            all[$i] = $value;
            $i += 1;
        }
        all
    }};
}
#[cfg(target_arch = "x86_64")]
pub(crate) use array_of;

/// Most lanes of a vector: rows in scratch are padded to a multiple.
pub(crate) const MOST_LANES: usize = 16;

/// Vectors of floats.
///
/// # Safety of the operations
/// Each needs the instructions of its implementation, and pointers that are valid for as many values as a vector has
/// lanes. Alignment is not needed.
pub(crate) trait Simd: Copy {
    /// A vector of floats.
    type F: Copy;
    const LANES: usize;
    /// Rows, at most four, whose sums with four vectors each fit in the registers.
    const ROWS: usize;
    /// Rows, at most eight, whose sums with two vectors each fit in the registers.
    const VALUE_ROWS: usize;
    /// Vectors of each of [`Simd::ROWS`] rows that fit in the registers.
    const CHUNKS: usize;

    unsafe fn zero() -> Self::F;
    unsafe fn splat(value: f32) -> Self::F;
    unsafe fn load(at: *const f32) -> Self::F;
    unsafe fn store(at: *mut f32, value: Self::F);
    unsafe fn load_f16(at: *const u8) -> Self::F;
    unsafe fn load_bf16(at: *const u8) -> Self::F;
    /// Signed bytes as floats.
    unsafe fn load_i8(at: *const i8) -> Self::F;

    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the machine can.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger; `b` if one is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// The nearest whole number.
    unsafe fn round(a: Self::F) -> Self::F;
    /// 2 to the power of `a`, a whole number from -126 to 127.
    unsafe fn power_of_two(a: Self::F) -> Self::F;
    /// `a` where `by` is at least `least`, else 0.
    unsafe fn zero_below(a: Self::F, by: Self::F, least: f32) -> Self::F;
    /// `a + b`, but minus infinity where `b` is that, whatever `a` is.
    unsafe fn add_mask(a: Self::F, b: Self::F) -> Self::F;

    /// Sum of the lanes.
    unsafe fn sum(a: Self::F) -> f32;
    /// Largest lane.
    unsafe fn largest(a: Self::F) -> f32;
    /// Writes the sums of `sums[row]`'s four vectors as four floats at `to + row * stride`, for the first `ROWS` rows.
    /// A sum's bits do not depend on the place of its vector.
    unsafe fn store_sums<const ROWS: usize>(sums: &[[Self::F; 4]; ROWS], to: *mut f32, stride: usize);
    /// Writes what 16 bytes of nibbles stand for: first the low ones, then the high ones.
    unsafe fn unpack_nibbles(at: *const u8, values: &[i8; 16], to: *mut i8);
}
