//! Weighted sums of values.

use super::TILE;
use super::cache::{Cached, prefetch};
use super::dots::Ahead;
use crate::simd::Simd;

/// Values of a tile.
#[derive(Clone, Copy)]
pub(super) struct Values {
    pub at: *const u8,
    /// Bytes from one to the next.
    pub stride: usize,
    /// Floats of each, a multiple of the lanes.
    pub length: usize,
    /// Number of values, at most [`TILE`].
    pub count: usize,
}

/// Multiplies the sums of the rows that `seen` marks with their `factors`, and adds the values by `weights`, which
/// has [`TILE`] for each row.
///
/// # Safety
/// `sums` is valid for a row of values for each of `seen`, `weights` likewise, values for what they say.
#[inline(always)]
pub(super) unsafe fn add<S: Simd, C: Cached>(
    weights: *const f32,
    factors: &[f32],
    seen: &[bool],
    values: &Values,
    sums: *mut f32,
    ahead: Option<Ahead>,
) {
    let mut ahead = ahead;
    let step = S::CHUNKS * S::LANES;
    let mut row = 0;
    while row < seen.len() {
        let rows = (seen.len() - row).min(S::ROWS);
        if seen[row..row + rows].contains(&true) {
            let mut i = 0;
            while i < values.length {
                let whole = i + step <= values.length;
                // SAFETY: the caller's contract.
                unsafe {
                    let at = Block {
                        weights: weights.add(row * TILE),
                        factors: factors.as_ptr().add(row),
                        sums: sums.add(row * values.length + i),
                        values: values.at.add(i * C::BYTES),
                        ahead: ahead.take(),
                    };
                    match (whole, S::CHUNKS) {
                        (true, 4) => of_rows::<S, C, 4>(&at, rows, values),
                        (true, _) => of_rows::<S, C, 2>(&at, rows, values),
                        (false, _) => of_rows::<S, C, 1>(&at, rows, values),
                    }
                }
                i += if whole { step } else { S::LANES };
            }
        }
        row += rows;
    }
}

/// Where a block of sums and what belongs to it is.
struct Block {
    weights: *const f32,
    factors: *const f32,
    sums: *mut f32,
    values: *const u8,
    ahead: Option<Ahead>,
}

/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn of_rows<S: Simd, C: Cached, const CHUNKS: usize>(at: &Block, rows: usize, values: &Values) {
    // SAFETY: the caller's contract.
    unsafe {
        match rows {
            1 => block::<S, C, CHUNKS, 1>(at, values),
            2 => block::<S, C, CHUNKS, 2>(at, values),
            3 => block::<S, C, CHUNKS, 3>(at, values),
            _ => block::<S, C, CHUNKS, 4>(at, values),
        }
    }
}

/// Adds to `ROWS` rows' sums, `CHUNKS` vectors of each.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn block<S: Simd, C: Cached, const CHUNKS: usize, const ROWS: usize>(at: &Block, values: &Values) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut sums = [[S::zero(); CHUNKS]; ROWS];
        for (row, sums) in sums.iter_mut().enumerate() {
            let factor = S::splat(*at.factors.add(row));
            for (chunk, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul(factor, S::load(at.sums.add(row * values.length + chunk * S::LANES)));
            }
        }
        let mut value_at = at.values;
        for position in 0..values.count {
            if let Some(ahead) = at.ahead {
                prefetch(ahead.at.wrapping_add(position * ahead.stride), ahead.bytes);
            }
            let mut value = [S::zero(); CHUNKS];
            for (chunk, value) in value.iter_mut().enumerate() {
                *value = C::load::<S>(value_at.add(chunk * S::LANES * C::BYTES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let weight = S::splat(*at.weights.add(row * TILE + position));
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = S::fma(weight, value, *sum);
                }
            }
            value_at = value_at.wrapping_add(values.stride);
        }
        for (row, sums) in sums.iter().enumerate() {
            for (chunk, &sum) in sums.iter().enumerate() {
                S::store(at.sums.add(row * values.length + chunk * S::LANES), sum);
            }
        }
    }
}
