//! Scores: products of queries and keys.

use super::TILE;
use super::cache::{Cached, prefetch};
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

/// What to request while scores are computed: a row for each position.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub at: *const u8,
    pub stride: usize,
    pub bytes: usize,
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
    ahead: Option<Ahead>,
) {
    for first in (0..keys.count).step_by(4) {
        if let Some(ahead) = ahead {
            for i in first..first + 4 {
                prefetch(ahead.at.wrapping_add(i * ahead.stride), ahead.bytes);
            }
        }
        let four = std::array::from_fn(|i| (first + i).min(keys.count - 1) * keys.stride);
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
        let keys_at = four.map(|offset| keys.at.add(offset));
        let mut sums = [[S::zero(); 4]; ROWS];
        let mut i = 0;
        while i < keys.length {
            let key = keys_at.map(|at| C::load::<S>(at.add(i * C::BYTES)));
            for (row, sums) in sums.iter_mut().enumerate() {
                let query = S::load(queries.add(row * keys.length + i));
                for (sum, key) in sums.iter_mut().zip(key) {
                    *sum = S::fma(query, key, *sum);
                }
            }
            i += S::LANES;
        }
        S::store_sums(&sums, to, TILE);
    }
}
