//! Exponentials, in equal steps for all instruction sets.

use super::Simd;

/// `e` to the power of `x`, which is at most 88; below -87, 0. The relative error is at most 2e-7.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    const LEAST: f32 = -87.0;
    // SAFETY: the caller's contract.
    unsafe {
        // Second operands, which stay if they are not numbers.
        let within = S::min(S::splat(88.0), S::max(S::splat(LEAST), x));
        let n = S::round(S::mul(within, S::splat(std::f32::consts::LOG2_E)));
        // ln 2 in two parts, the first with few enough bits that its products with `n` are exact.
        let r = S::fma(n, S::splat(-0.693_359_4), within);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        let mut y = S::splat(1.0 / 5040.0);
        for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            y = S::fma(y, r, S::splat(c));
        }
        S::zero_below(S::mul(y, S::power_of_two(n)), x, LEAST)
    }
}

/// Hyperbolic tangent, with an absolute error of at most 3e-7.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let within = S::min(S::splat(20.0), S::max(S::splat(-20.0), x));
        let e = exp::<S>(S::add(within, within));
        let one = S::splat(1.0);
        S::sub(one, S::div(S::splat(2.0), S::add(e, one)))
    }
}
