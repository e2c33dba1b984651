//! Scores of a tile become weights.

use super::TILE;
use crate::half::f16_to_f32;
use crate::simd::{Simd, exp, tanh};

const HIDDEN: u16 = 0xfc00;

/// Sums of a row so far.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// Largest score.
    pub largest: f32,
    /// Sum of the weights, relative to it.
    pub sum: f32,
}

impl State {
    pub(super) const NOTHING: Self = Self { largest: f32::NEG_INFINITY, sum: 0.0 };
}

/// Changes of scores.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    pub scale: f32,
    pub softcap: f32,
}

/// Returns true if a mask hides all of `count` positions.
///
/// # Safety
/// `mask` is valid for them.
#[inline(always)]
pub(super) unsafe fn hides_all(mask: *const u8, count: usize) -> bool {
    // SAFETY: the caller's contract.
    unsafe { is_everywhere(HIDDEN, mask, count) }
}

/// Returns true if a mask adds nothing to any of `count` positions.
///
/// # Safety
/// `mask` is valid for them.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn shows_all(mask: *const u8, count: usize) -> bool {
    // SAFETY: the caller's contract.
    unsafe { is_everywhere(0, mask, count) }
}

/// # Safety
/// `mask` is valid for `count` positions.
#[inline(always)]
unsafe fn is_everywhere(half: u16, mask: *const u8, count: usize) -> bool {
    let mut differs = 0;
    for i in 0..count {
        // SAFETY: the caller's contract.
        differs |= unsafe { mask.cast::<u16>().add(i).read_unaligned() } ^ half;
    }
    differs == 0
}

/// Writes what to add to a tile's scores: `slope` times the mask, and minus infinity after `count` positions.
///
/// # Safety
/// `mask` is valid for `count` positions unless it is null.
#[inline(always)]
pub(super) unsafe fn additions<S: Simd>(mask: *const u8, slope: f32, count: usize, to: &mut [f32; TILE]) {
    // SAFETY: the caller's contract.
    unsafe {
        if mask.is_null() {
            to[..count].fill(0.0);
        } else if count == TILE {
            let slope = S::splat(slope);
            for i in (0..TILE).step_by(S::LANES) {
                S::store(to.as_mut_ptr().add(i), S::mul(slope, S::load_f16(mask.add(2 * i))));
            }
        } else {
            for (i, to) in to[..count].iter_mut().enumerate() {
                *to = slope * f16_to_f32(mask.cast::<u16>().add(i).read_unaligned());
            }
        }
    }
    to[count..].fill(f32::NEG_INFINITY);
}

/// Turns a row's scores into weights, and returns the factor of what was summed before.
///
/// # Safety
/// `scores` is valid for [`TILE`] floats.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd>(
    scores: *mut f32,
    additions: &[f32; TILE],
    how: Scores,
    state: &mut State,
) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let scale = S::splat(if how.softcap == 0.0 { how.scale } else { how.scale / how.softcap });
        let softcap = S::splat(how.softcap);
        let mut largest = S::splat(f32::NEG_INFINITY);
        for i in (0..TILE).step_by(S::LANES) {
            let mut score = S::mul(scale, S::load(scores.add(i)));
            if how.softcap != 0.0 {
                score = S::mul(softcap, tanh::<S>(score));
            }
            score = S::add_mask(score, S::load(additions.as_ptr().add(i)));
            S::store(scores.add(i), score);
            largest = S::max(score, largest);
        }
        let in_tile = S::largest(largest);
        if in_tile == f32::NEG_INFINITY {
            // Nothing to see here. Scores that are no numbers have no largest and are taken for nothing as well,
            // unless the sum shows them.
            let mut sum = S::zero();
            for i in (0..TILE).step_by(S::LANES) {
                let weight = exp::<S>(S::load(scores.add(i)));
                S::store(scores.add(i), weight);
                sum = S::add(sum, weight);
            }
            state.sum += S::sum(sum);
            return 1.0;
        }
        let factor = if in_tile > state.largest {
            let factor = power::<S>(state.largest - in_tile);
            state.largest = in_tile;
            factor
        } else {
            1.0
        };
        let subtracted = S::splat(state.largest);
        let mut sum = S::zero();
        for i in (0..TILE).step_by(S::LANES) {
            let weight = exp::<S>(S::sub(S::load(scores.add(i)), subtracted));
            S::store(scores.add(i), weight);
            sum = S::add(sum, weight);
        }
        state.sum = state.sum * factor + S::sum(sum);
        factor
    }
}

/// `e` to the power of `x`, as [`exp`] computes it.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn power<S: Simd>(x: f32) -> f32 {
    let mut lanes = [0.0; 16];
    // SAFETY: the caller's contract, and room for a vector.
    unsafe { S::store(lanes.as_mut_ptr(), exp::<S>(S::splat(x))) };
    lanes[0]
}
