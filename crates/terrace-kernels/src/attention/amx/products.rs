//! Products of tiles: scores, and weighted sums of values.

use super::super::ahead::Spread;
use super::super::cache::{BrainFloats, Cached, Halves};
use super::super::{ROWS, TILE as POSITIONS};
use super::cached::{self, Cache};
use super::{CHUNK, CHUNK_TILES, Groups, PARTS, STEP, WORDS};
use crate::simd::tiles::{TILE, add_pairs, load, store_rows, zero};
use std::arch::x86_64::*;

/// Bytes of a tile's row.
const ROW: usize = 64;
/// Units of requests for a step of products.
const PRODUCT: usize = 3;

/// Units of requests for the scores of a tile of positions.
pub(super) const fn units_of_scores(cache: &Cache) -> usize {
    let (rows, steps) = (cache.count.next_multiple_of(TILE), cache.length / STEP);
    rows * steps.div_ceil(CHUNK) + rows / TILE * steps * PRODUCT
}

/// Units of requests for the values of a tile of positions, for so many groups.
pub(super) const fn units_of_values(cache: &Cache, groups: usize) -> usize {
    let steps = cache.count.div_ceil(STEP);
    cache.length.div_ceil(CHUNK_TILES * TILE) * steps * (TILE / 2 + groups * PRODUCT)
}

/// Calls a function for tiles of sums number 0 to 3, as far as there are so many.
macro_rules! for_sums {
    ($count:expr, $function:ident $(::<$type:ident>)? ($($argument:expr),*)) => {
        $function::<0 $(, $type)?>($($argument),*);
        if $count > 1 {
            $function::<1 $(, $type)?>($($argument),*);
        }
        if $count > 2 {
            $function::<2 $(, $type)?>($($argument),*);
        }
        if $count > 3 {
            $function::<3 $(, $type)?>($($argument),*);
        }
    };
}

/// Types of caches that are sums of one or two BF16.
pub(super) trait Parts: Cached {
    /// There are low parts.
    const LOW: bool;
}

impl Parts for Halves {
    const LOW: bool = true;
}

impl Parts for BrainFloats {
    const LOW: bool = false;
}

/// Computes scores of groups with the keys of a tile of positions. Scores of positions after the last are any number.
///
/// # Safety
/// As for [`super::tile`]; queries are arranged.
#[inline(always)]
pub(super) unsafe fn scores<C: Parts>(cache: &Cache, groups: &Groups, ahead: &mut Spread) {
    const { assert!(ROWS / TILE <= 4, "a tile of sums for each group") };
    let steps = cache.length / STEP;
    for first in (0..cache.count).step_by(TILE) {
        // SAFETY: the caller's contract.
        unsafe {
            for_sums!(groups.count, zero());
            for step in (0..steps).step_by(CHUNK) {
                let of_chunk = (steps - step).min(CHUNK);
                cached::keys::<C>(cache, first, step, of_chunk, groups.chunk, ahead);
                for i in 0..of_chunk {
                    ahead.request(PRODUCT);
                    let keys = groups.chunk.add(i * PARTS * WORDS);
                    load::<6>(keys.cast(), ROW);
                    if C::LOW {
                        load::<7>(keys.add(WORDS).cast(), ROW);
                    }
                    let queries = groups.queries.add((step + i) * PARTS * WORDS);
                    for_sums!(groups.count, add_queries::<C>(queries, steps));
                }
            }
            for_sums!(groups.count, store_scores(groups.scores.add(first * TILE)));
        }
    }
}

/// # Safety
/// As for [`scores`].
#[inline(always)]
unsafe fn add_queries<const GROUP: u8, C: Parts>(queries: *const u32, steps: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        let queries = queries.add(GROUP as usize * steps * PARTS * WORDS);
        load::<4>(queries.cast(), ROW);
        load::<5>(queries.add(WORDS).cast(), ROW);
        add_pairs::<GROUP, 6, 4>();
        add_pairs::<GROUP, 6, 5>();
        if C::LOW {
            add_pairs::<GROUP, 7, 4>();
        }
    }
}

/// # Safety
/// As for [`scores`].
#[inline(always)]
unsafe fn store_scores<const GROUP: u8>(scores: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { store_rows::<GROUP>(scores.add(GROUP as usize * POSITIONS * TILE).cast(), ROW) }
}

/// Multiplies each row's sums by its factor.
///
/// # Safety
/// `sums` is valid for the tiles of `length` floats, a multiple of 16, for each row; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn scale(sums: *mut f32, length: usize, factors: &[f32; TILE]) {
    for (row, &factor) in factors.iter().enumerate().filter(|(_, factor)| **factor != 1.0) {
        // SAFETY: the caller's contract.
        unsafe {
            let factor = _mm512_set1_ps(factor);
            for i in 0..length / TILE {
                let at = sums.add(i * WORDS + row * TILE);
                _mm512_store_ps(at, _mm512_mul_ps(factor, _mm512_load_ps(at)));
            }
        }
    }
}

/// Copies a row's sums from its group's tiles.
///
/// # Safety
/// As for [`scale`]; `to` is valid for `length` floats.
#[inline(always)]
pub(super) unsafe fn write_row(sums: *const f32, row: usize, length: usize, to: *mut f32) {
    for i in 0..length / TILE {
        // SAFETY: the caller's contract.
        unsafe {
            let sum = _mm512_load_ps(sums.add(i * WORDS + row * TILE));
            _mm512_store_ps(to.add(i * TILE), sum);
        }
    }
}

/// Adds weighted values to the sums of groups that are `seen`.
///
/// # Safety
/// As for [`super::tile`]; weights are arranged.
#[inline(always)]
pub(super) unsafe fn values<C: Parts>(cache: &Cache, groups: &Groups, seen: &[bool], ahead: &mut Spread) {
    let steps = cache.count.div_ceil(STEP);
    for first in (0..cache.length).step_by(CHUNK_TILES * TILE) {
        let tiles = ((cache.length - first) / TILE).min(CHUNK_TILES);
        // SAFETY: the caller's contract.
        unsafe {
            cached::values::<C>(cache, first, tiles, groups.chunk, ahead);
            for group in (0..groups.count).filter(|&group| seen[group]) {
                let sums = groups.sums.add(group * TILE * cache.length + first * TILE);
                for_sums!(tiles, load_sums(sums));
                for step in 0..steps {
                    ahead.request(PRODUCT);
                    let weights = groups.weights.add((group * POSITIONS / STEP + step) * PARTS * WORDS);
                    load::<4>(weights.cast(), ROW);
                    load::<5>(weights.add(WORDS).cast(), ROW);
                    let values = groups.chunk.add(step * tiles * PARTS * WORDS);
                    for_sums!(tiles, add_values::<C>(values));
                }
                for_sums!(tiles, store_sums(sums));
            }
        }
    }
}

/// # Safety
/// As for [`values`].
#[inline(always)]
unsafe fn add_values<const SUMS: u8, C: Parts>(values: *const u32) {
    // SAFETY: the caller's contract.
    unsafe {
        let values = values.add(SUMS as usize * PARTS * WORDS);
        load::<6>(values.cast(), ROW);
        add_pairs::<SUMS, 4, 6>();
        add_pairs::<SUMS, 5, 6>();
        if C::LOW {
            load::<7>(values.add(WORDS).cast(), ROW);
            add_pairs::<SUMS, 4, 7>();
        }
    }
}

/// # Safety
/// As for [`values`].
#[inline(always)]
unsafe fn load_sums<const SUMS: u8>(sums: *const f32) {
    // SAFETY: the caller's contract.
    unsafe { load::<SUMS>(sums.add(SUMS as usize * WORDS).cast(), ROW) }
}

/// # Safety
/// As for [`values`].
#[inline(always)]
unsafe fn store_sums<const SUMS: u8>(sums: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { store_rows::<SUMS>(sums.add(SUMS as usize * WORDS).cast(), ROW) }
}
