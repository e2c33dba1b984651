//! A group's scores become weights: a vector has a position's, a lane for each row.

use super::super::ahead::Spread;
use super::super::item::Row;
use super::super::softmax::{State, additions, shows_all};
use super::super::{Call, TILE as POSITIONS};
use super::cached::split;
use super::{PARTS, STEP, Scratch, WORDS};
use crate::simd::avx512::transpose;
use crate::simd::tiles::{TILE, keep_awake};
use crate::simd::{Avx512, Simd, exp, tanh};
use std::arch::x86_64::*;
use std::ops::Range;

/// Positions between multiplications that keep tiles awake.
const AWAKE: usize = 32;
/// Sums of weights that do not wait for each other, and positions between requests.
const SUMS: usize = 4;
/// Units of requests of four positions.
const REQUESTS: usize = 3;
/// Units of requests of a group.
pub(super) const UNITS: usize = POSITIONS / SUMS * REQUESTS;

/// Turns the scores of group number `group` into tiles of weights; returns factors of what was summed before, if any is not 1.
///
/// # Safety
/// As for [`super::tile`]; there are at most 16 rows and as many states.
#[inline(always)]
pub(super) unsafe fn weigh(
    scratch: &Scratch,
    group: usize,
    call: &Call,
    tile: &Range<usize>,
    rows: &[Row],
    states: &mut [State],
    ahead: &mut Spread,
) -> Option<[f32; TILE]> {
    let mut largest_before = [f32::NEG_INFINITY; TILE];
    let mut sum_before = [0.0; TILE];
    for (i, state) in states.iter().enumerate() {
        (largest_before[i], sum_before[i]) = (state.largest, state.sum);
    }
    // SAFETY: the caller's contract.
    unsafe {
        let scores = scratch.scores.add(group * POSITIONS * TILE);
        let changed = change(scratch, scores, call, tile, rows);
        let scale = _mm512_set1_ps(if changed { 1.0 } else { call.scale });
        let mut largest = [_mm512_set1_ps(f32::NEG_INFINITY); SUMS];
        for first in (0..POSITIONS).step_by(SUMS) {
            for (i, largest) in largest.iter_mut().enumerate() {
                let score = _mm512_mul_ps(scale, _mm512_load_ps(scores.add((first + i) * TILE)));
                *largest = Avx512::max(score, *largest);
            }
        }
        let in_tile =
            _mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3]));
        let before = _mm512_loadu_ps(largest_before.as_ptr());
        let largest = _mm512_max_ps(before, in_tile);
        // With nothing to see, scores that are no numbers show in the sum, as `super::super::softmax` has it.
        let something = _mm512_cmp_ps_mask::<_CMP_NEQ_OQ>(in_tile, _mm512_set1_ps(f32::NEG_INFINITY));
        let subtracted = _mm512_maskz_mov_ps(something, largest);
        let grows = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(in_tile, before);
        let factor = exp::<Avx512>(_mm512_sub_ps(before, largest));
        let factor = _mm512_mask_mov_ps(_mm512_set1_ps(1.0), grows, factor);

        let mut sums = [_mm512_setzero_ps(); SUMS];
        for first in (0..POSITIONS).step_by(SUMS) {
            ahead.request(REQUESTS);
            if first % AWAKE == 0 {
                keep_awake();
            }
            let mut weights = [_mm512_setzero_ps(); SUMS];
            for (i, (weight, sum)) in weights.iter_mut().zip(&mut sums).enumerate() {
                let score = _mm512_mul_ps(scale, _mm512_load_ps(scores.add((first + i) * TILE)));
                *weight = exp::<Avx512>(_mm512_sub_ps(score, subtracted));
                *sum = _mm512_add_ps(*sum, *weight);
            }
            for (i, both) in [[weights[0], weights[1]], [weights[2], weights[3]]].into_iter().enumerate() {
                let [high, low] = split::<true>(both[0], both[1]);
                let to = scratch.pairs.add((first / 2 + i) * TILE);
                _mm512_store_si512(to.cast(), high);
                _mm512_store_si512(to.add(POSITIONS / 2 * TILE).cast(), low);
            }
        }
        let sum = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
        let sum = _mm512_fmadd_ps(_mm512_loadu_ps(sum_before.as_ptr()), factor, sum);
        for step in 0..tile.len().div_ceil(STEP) {
            for part in 0..PARTS {
                keep_awake();
                let from = scratch.pairs.add((part * POSITIONS + step * STEP) / 2 * TILE);
                let to = scratch.weights.add(((group * POSITIONS / STEP + step) * PARTS + part) * WORDS);
                let mut words = [_mm512_setzero_si512(); TILE];
                for (i, words) in words.iter_mut().enumerate() {
                    *words = _mm512_load_si512(from.add(i * TILE).cast());
                }
                transpose(&mut words);
                for (i, words) in words.iter().enumerate() {
                    _mm512_store_si512(to.add(i * TILE).cast(), *words);
                }
            }
        }
        let (mut largest_after, mut sum_after, mut factors) = ([0.0; TILE], [0.0; TILE], [0.0; TILE]);
        _mm512_storeu_ps(largest_after.as_mut_ptr(), largest);
        _mm512_storeu_ps(sum_after.as_mut_ptr(), sum);
        _mm512_storeu_ps(factors.as_mut_ptr(), factor);
        let mut any = false;
        for (i, state) in states.iter_mut().enumerate() {
            any |= factors[i] != 1.0 && state.largest != f32::NEG_INFINITY;
            *state = State { largest: largest_after[i], sum: sum_after[i] };
        }
        factors[states.len()..].fill(1.0);
        any.then_some(factors)
    }
}

/// Scales, caps and masks scores where they are, unless all that there is to do is to scale them. Returns true if it was done.
///
/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn change(
    scratch: &Scratch,
    scores: *mut f32,
    call: &Call,
    tile: &Range<usize>,
    rows: &[Row],
) -> bool {
    // SAFETY: the caller's contract.
    unsafe {
        let mut plain = tile.len() == POSITIONS && call.softcap == 0.0;
        let mut before = None;
        for row in rows {
            if plain && before != Some(row.mask) {
                let at = row.mask.wrapping_add(tile.start * 2);
                plain = row.mask.is_null() || shows_all(at, tile.len());
                before = Some(row.mask);
            }
        }
        if plain {
            return false;
        }
        arrange_additions(scratch, tile, rows);
        let scale = if call.softcap == 0.0 { call.scale } else { call.scale / call.softcap };
        let (scale, softcap) = (_mm512_set1_ps(scale), _mm512_set1_ps(call.softcap));
        for i in 0..POSITIONS {
            if i % AWAKE == 0 {
                keep_awake();
            }
            let at = scores.add(i * TILE);
            let mut score = _mm512_mul_ps(scale, _mm512_load_ps(at));
            if call.softcap != 0.0 {
                score = _mm512_mul_ps(softcap, tanh::<Avx512>(score));
            }
            _mm512_store_ps(at, Avx512::add_mask(score, _mm512_load_ps(scratch.additions.add(i * TILE))));
        }
        true
    }
}

/// Writes what is added to scores: for each position a vector of rows.
///
/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn arrange_additions(scratch: &Scratch, tile: &Range<usize>, rows: &[Row]) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut added = [[0.0; POSITIONS]; TILE];
        for (i, row) in rows.iter().enumerate() {
            let before = i.checked_sub(1).map(|before| &rows[before]);
            if before.is_some_and(|before| before.mask == row.mask && before.slope == row.slope) {
                added[i] = added[i - 1];
                continue;
            }
            let mask = row.mask.wrapping_add(if row.mask.is_null() { 0 } else { tile.start * 2 });
            additions::<Avx512>(mask, row.slope, tile.len(), &mut added[i]);
        }
        for first in (0..POSITIONS).step_by(TILE) {
            keep_awake();
            let mut words = [_mm512_setzero_si512(); TILE];
            for (words, added) in words.iter_mut().zip(&added) {
                *words = _mm512_loadu_si512(added.as_ptr().add(first).cast());
            }
            transpose(&mut words);
            for (i, words) in words.iter().enumerate() {
                _mm512_store_si512(scratch.additions.add((first + i) * TILE).cast(), *words);
            }
        }
    }
}
