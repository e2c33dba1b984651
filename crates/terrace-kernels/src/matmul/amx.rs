//! Rows of activations that tiles are loaded from.
//!
//! A tile of activations (4, 5) has a row for each of up to 16 columns, a tile of weights (6, 7) four bytes of each of 16 rows
//! of weights in a row, as panels have them, and a tile of sums a row of 16 numbers for each column.

use super::Column;
use crate::simd::tiles::{TILE, load};

/// Columns of a group where so many are divided into groups of equal size.
pub(super) const fn group_of(columns: usize) -> usize {
    columns.div_ceil(columns.div_ceil(TILE))
}

/// Tiles of a group's activations, `step` bytes apart.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    from: *const u8,
    stride: usize,
    step: usize,
}

impl Activations {
    /// The tiles of `columns` from byte `at` on, in steps of `STEP` bytes: where they are if they are `group` rows at equal
    /// distances, and otherwise copied.
    ///
    /// # Safety
    /// The columns, at least one and at most `group`, are valid for `copy.len() * STEP` bytes from `at` on.
    #[inline(always)]
    pub unsafe fn of<const STEP: usize>(
        columns: &[Column],
        group: usize,
        at: usize,
        copy: &mut [[[u8; STEP]; TILE]],
    ) -> Self {
        let address = |i: usize| columns[i].input.addr();
        let stride = if columns.len() > 1 { address(1).wrapping_sub(address(0)) } else { 0 };
        let equal = (1..columns.len()).all(|i| address(i).wrapping_sub(address(i - 1)) == stride);
        if equal && columns.len() == group {
            return Self { from: columns[0].input.wrapping_add(at), stride, step: STEP };
        }
        for (step, tile) in copy.iter_mut().enumerate() {
            for (row, column) in tile.iter_mut().zip(columns) {
                // SAFETY: the caller's contract.
                *row = unsafe { column.input.add(at + step * STEP).cast::<[u8; STEP]>().read() };
            }
        }
        Self { from: copy.as_ptr().cast(), stride: STEP, step: STEP * TILE }
    }

    /// Loads tile `T` with step number `step`.
    ///
    /// # Safety
    /// As for [`load`]; there are so many steps.
    #[inline(always)]
    pub unsafe fn load<const T: u8>(&self, step: usize) {
        // SAFETY: the caller's contract.
        unsafe { load::<T>(self.from.wrapping_add(step * self.step), self.stride) }
    }
}
