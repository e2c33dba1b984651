//! Weighted sums of values.

use super::TILE;
use super::ahead::Ahead;
use super::cache::Cached;
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
    ahead: &mut Ahead,
) {
    // Rows of many positions lie far apart, where few of their lines find room in the first-level cache: with the
    // rows of a block as inner loop, each line is used up when it comes.
    let few = seen.len() <= S::ROWS;
    let step = S::LANES * if few { S::CHUNKS } else { 2 };
    let blocks = values.length.div_ceil(step) * seen.len().div_ceil(S::VALUE_ROWS);
    let lines = ahead.share(blocks * values.count);
    let mut i = 0;
    while i < values.length {
        let whole = i + step <= values.length;
        let mut row = 0;
        while row < seen.len() {
            let rows = (seen.len() - row).min(S::VALUE_ROWS);
            if seen[row..row + rows].contains(&true) {
                // SAFETY: the caller's contract.
                unsafe {
                    let at = Block {
                        weights: weights.add(row * TILE),
                        factors: factors.as_ptr().add(row),
                        sums: sums.add(row * values.length + i),
                        values: values.at.add(i * C::BYTES),
                        lines,
                    };
                    match (whole, few, S::CHUNKS) {
                        (true, true, 4) => of_rows::<S, C, 4>(&at, rows, values, ahead),
                        (true, ..) => of_rows::<S, C, 2>(&at, rows, values, ahead),
                        (false, ..) => of_rows::<S, C, 1>(&at, rows, values, ahead),
                    }
                }
            }
            row += rows;
        }
        i += if whole { step } else { S::LANES };
    }
}

/// Offsets of a block of sums and its parts.
struct Block {
    weights: *const f32,
    factors: *const f32,
    sums: *mut f32,
    values: *const u8,
    /// Lines to request for each position.
    lines: usize,
}

/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn of_rows<S: Simd, C: Cached, const CHUNKS: usize>(
    at: &Block,
    rows: usize,
    values: &Values,
    ahead: &mut Ahead,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match rows {
            1 => block::<S, C, CHUNKS, 1>(at, values, ahead),
            2 => block::<S, C, CHUNKS, 2>(at, values, ahead),
            3 => block::<S, C, CHUNKS, 3>(at, values, ahead),
            4 => block::<S, C, CHUNKS, 4>(at, values, ahead),
            5 if CHUNKS < 4 => block::<S, C, CHUNKS, 5>(at, values, ahead),
            6 if CHUNKS < 4 => block::<S, C, CHUNKS, 6>(at, values, ahead),
            7 if CHUNKS < 4 => block::<S, C, CHUNKS, 7>(at, values, ahead),
            _ if CHUNKS < 4 => block::<S, C, CHUNKS, 8>(at, values, ahead),
            _ => unreachable!("few rows"),
        }
    }
}

/// Adds to `ROWS` rows' sums, `CHUNKS` vectors of each.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn block<S: Simd, C: Cached, const CHUNKS: usize, const ROWS: usize>(
    at: &Block,
    values: &Values,
    ahead: &mut Ahead,
) {
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
        let mut weight_at = at.weights;
        for _ in 0..values.count {
            ahead.request(at.lines);
            let mut value = [S::zero(); CHUNKS];
            for (chunk, value) in value.iter_mut().enumerate() {
                *value = C::load::<S>(value_at.add(chunk * S::LANES * C::BYTES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let weight = S::splat(*weight_at.add(row * TILE));
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = S::fma(weight, value, *sum);
                }
            }
            value_at = value_at.wrapping_add(values.stride);
            weight_at = weight_at.wrapping_add(1);
        }
        for (row, sums) in sums.iter().enumerate() {
            for (chunk, &sum) in sums.iter().enumerate() {
                S::store(at.sums.add(row * values.length + chunk * S::LANES), sum);
            }
        }
    }
}
