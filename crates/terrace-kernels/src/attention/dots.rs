//! Scores: products of queries and keys.

use super::TILE;
use super::ahead::Ahead;
use super::cache::Cached;
use crate::simd::Simd;

/// Keys of a tile.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub at: *const u8,
    /// Bytes from one to the next.
    pub stride: usize,
    /// Values of each, a multiple of the lanes.
    pub length: usize,
    /// Number of keys, at most [`TILE`].
    pub count: usize,
}

/// Computes the scores of the rows that `seen` marks: those of row `r` at `scores + r * TILE`. Scores of positions
/// after the last are those of the last.
///
/// # Safety
/// `queries` is valid for a padded row for each of `seen`, `scores` for [`TILE`] floats for each, keys for what they
/// say.
#[inline(always)]
pub(super) unsafe fn scores<S: Simd, C: Cached>(
    queries: *const f32,
    seen: &[bool],
    keys: &Keys,
    scores: *mut f32,
    ahead: &mut Ahead,
) {
    let lines = ahead.share(keys.count.div_ceil(4));
    for first in (0..keys.count).step_by(4) {
        ahead.request(lines);
        let mut four = [0; 4];
        for (i, offset) in four.iter_mut().enumerate() {
            *offset = (first + i).min(keys.count - 1) * keys.stride;
        }
        let mut row = 0;
        while row < seen.len() {
            let rows = (seen.len() - row).min(S::ROWS);
            if seen[row..row + rows].contains(&true) {
                // SAFETY: the caller's contract; positions are clamped to the last.
                unsafe {
                    let queries = queries.add(row * keys.length);
                    let to = scores.add(row * TILE + first);
                    match rows {
                        1 => block::<S, C, 1>(queries, keys, four, to),
                        2 => block::<S, C, 2>(queries, keys, four, to),
                        3 => block::<S, C, 3>(queries, keys, four, to),
                        _ => block::<S, C, 4>(queries, keys, four, to),
                    }
                }
            }
            row += rows;
        }
    }
}

/// Scores of `ROWS` rows with four keys.
///
/// # Safety
/// As for [`scores`].
#[inline(always)]
unsafe fn block<S: Simd, C: Cached, const ROWS: usize>(
    queries: *const f32,
    keys: &Keys,
    four: [usize; 4],
    to: *mut f32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        // Loops, not closures: these would be functions without the instructions of their caller.
        let mut key_at = [keys.at; 4];
        for (at, offset) in key_at.iter_mut().zip(four) {
            *at = at.add(offset);
        }
        let mut query_at = queries;
        let end = queries.add(keys.length);
        let mut sums = [[S::zero(); 4]; ROWS];
        while query_at < end {
            let mut key = [S::zero(); 4];
            for (key, at) in key.iter_mut().zip(&mut key_at) {
                *key = C::load::<S>(*at);
                *at = at.add(S::LANES * C::BYTES);
            }
            let mut query_row = query_at;
            for sums in &mut sums {
                let query = S::load(query_row);
                query_row = query_row.wrapping_add(keys.length);
                for (sum, key) in sums.iter_mut().zip(key) {
                    *sum = S::fma(query, key, *sum);
                }
            }
            query_at = query_at.add(S::LANES);
        }
        S::store_sums(&sums, to, TILE);
    }
}
