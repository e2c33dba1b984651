//! Products of bytes with tiles of AMX, over rows of activations that are packed in the order in which tiles take them.
//!
//! Rows of activations are divided into groups of equal size, of which a tile has each one's. A unit has 256 values of a
//! group. Units are packed once, as many as the second-level cache holds, and multiplied with all panels of weights: of
//! each panel, 256 values of all rows are unpacked, then multiplied with all groups. Results stay in memory of their own
//! meanwhile, side by side, since their rows may lie at distances that take each other's places in the caches.

use super::ahead::Ahead;
use super::amx::group_of;
use super::wide::Results;
use super::{Column, LANES, PANEL, PanelRange, Product};
use crate::memory::CacheLine;
use crate::simd::tiles::{TILE, Tiles};
use std::arch::x86_64::*;
use std::ops::Range;

/// Values of a row in a unit; the last unit of a row may have fewer.
pub(super) const UNIT: usize = 256;
/// Most groups that are packed together.
const GROUPS: usize = 32;
/// Lines of units that are packed together: 1 MiB, half of the second-level cache wherever there is AMX.
const LINES: usize = (1 << 20) / size_of::<CacheLine>();

/// Results of a group: of each row of activations, those of a panel's rows of weights.
pub(super) type GroupResults = [[[f32; LANES]; PANEL / LANES]; TILE];

/// Kernels of a family of types.
pub(super) trait Family {
    /// Bytes of a row of activations in a tile.
    const STEP: usize;
    /// Some values of a group of rows of activations: plain numbers, any bytes of which are such.
    type Unit;
    /// A thread's unpacked weights of a unit, and what tiles are stored to.
    type Panel;

    /// Writes values of row `i` of a unit's group: so many from value `range.start` on, of a row of `length`.
    ///
    /// # Safety
    /// The row is valid for its length.
    unsafe fn pack(product: &Product, row: *const u8, range: Range<usize>, to: &mut Self::Unit, i: usize);

    /// Unpacks a part of a panel, and adds its products with each unit's rows to the unit's results. Calls
    /// [`Outcome::done`] for each unit in turn.
    ///
    /// # Safety
    /// The weights are valid for the part's rows; units are packed for the part's values; tiles are configured
    /// for the units' rows and [`Family::STEP`]; the machine has AMX, and permutations of bytes if the type has a grid.
    unsafe fn multiply(work: Work<'_, '_, Self>);
}

/// A part of a panel and the units that it is multiplied with.
pub(super) struct Work<'a, 'b, F: Family + ?Sized> {
    pub part: &'a PanelRange<'a>,
    /// The panel's first row.
    pub weights: *const u8,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Rows of each unit.
    pub group: usize,
    pub units: &'a [F::Unit],
    pub results: &'a mut Outcome<'b>,
    pub panel: &'a mut F::Panel,
}

/// Results of all groups, and where they go once they are complete.
pub(super) struct Outcome<'a> {
    pub groups: &'a mut [GroupResults],
    /// Rows of a group.
    size: usize,
    columns: &'a [Column],
    shown: Results,
    complete: bool,
    ahead: Ahead<'a>,
}

impl Outcome<'_> {
    /// Ends the work on a unit of group number `group`: writes its results, while they are in the first-level cache, if it
    /// is the last one.
    ///
    /// # Safety
    /// As for [`Product::run`]; the machine has AVX-512.
    #[inline(always)]
    pub unsafe fn done(&self, group: usize) {
        self.ahead.request();
        if !self.complete {
            return;
        }
        let first = group * self.size;
        for (column, results) in self.columns[first..].iter().zip(&self.groups[group][..self.size]) {
            // SAFETY: the caller's contract; arrays of 16 numbers.
            unsafe {
                let of = |vector: usize| _mm512_load_ps(results[vector].as_ptr());
                self.shown.store(column, [of(0), of(1)]);
            }
        }
    }
}

/// A thread's scratch memory.
#[repr(C, align(64))]
pub(super) struct Scratch<P> {
    panel: P,
    results: [GroupResults; GROUPS],
    units: [CacheLine; LINES],
}

impl<P> Scratch<P> {
    /// The panel, results, and room for units.
    fn parts<U>(&mut self) -> (&mut P, &mut [GroupResults; GROUPS], &mut [U]) {
        const { assert!(align_of::<U>() <= align_of::<CacheLine>(), "aligned units") };
        let count = size_of_val(&self.units) / size_of::<U>();
        // SAFETY: the lines have so many units' bytes, which are plain numbers, and their alignment.
        let units = unsafe { std::slice::from_raw_parts_mut(self.units.as_mut_ptr().cast(), count) };
        (&mut self.panel, &mut self.results, units)
    }
}

/// As [`Product::run`].
///
/// # Safety
/// As there; the machine has AMX, and permutations of bytes if the type has a grid.
pub(super) unsafe fn run<F: Family>(
    product: &Product,
    (weights, stride): (*const u8, usize),
    rows: Range<usize>,
    columns: &[Column],
    scratch: &mut Scratch<F::Panel>,
) {
    let parts = columns.len().div_ceil(GROUPS * TILE);
    for columns in columns.chunks(columns.len().div_ceil(parts.max(1)).max(1)) {
        let group = group_of(columns.len());
        let groups = columns.len().div_ceil(group);
        // SAFETY: the caller's contract.
        let _tiles = unsafe { Tiles::configure(group, F::STEP) };
        let length = scratch.parts::<F::Unit>().2.len() / groups * UNIT;
        for from in (0..product.length).step_by(length) {
            let range = from..product.length.min(from + length);
            // SAFETY: the caller's contract.
            unsafe {
                pack::<F>(product, range.clone(), columns, group, scratch.parts().2);
                panels::<F>(product, (weights, stride), rows.clone(), range, columns, group, scratch);
            }
        }
    }
}

/// Packs some values of all columns: of each unit's values, those of all groups one after the other.
///
/// # Safety
/// As for [`Product::run`].
unsafe fn pack<F: Family>(
    product: &Product,
    range: Range<usize>,
    columns: &[Column],
    group: usize,
    units: &mut [F::Unit],
) {
    let mut units = units.iter_mut();
    for from in range.clone().step_by(UNIT) {
        for (columns, unit) in columns.chunks(group).zip(&mut units) {
            for (i, column) in columns.iter().enumerate() {
                // SAFETY: the caller's contract.
                unsafe { F::pack(product, column.input, from..range.end.min(from + UNIT), unit, i) };
            }
        }
    }
}

/// Multiplies all panels of the rows with packed values.
///
/// # Safety
/// As for [`Product::run`]; tiles are configured.
unsafe fn panels<F: Family>(
    product: &Product,
    (weights, stride): (*const u8, usize),
    rows: Range<usize>,
    range: Range<usize>,
    columns: &[Column],
    group: usize,
    scratch: &mut Scratch<F::Panel>,
) {
    let (panel, results, units) = scratch.parts::<F::Unit>();
    let groups = columns.len().div_ceil(group);
    let results = &mut results[..groups];
    for first in rows.clone().step_by(PANEL) {
        let count = PANEL.min(rows.end - first);
        let part = |from: usize, length| PanelRange { first, count, ..product.part(from, length) };
        let shown = Results::of(&part(range.start, 0));
        let first_row = weights.wrapping_add(first * stride);
        // SAFETY: the caller's contract; a panel's rows after the last are neither loaded nor stored.
        unsafe {
            if range.start == 0 {
                results.as_mut_ptr().write_bytes(0, groups);
            } else {
                for (columns, results) in columns.chunks(group).zip(&mut *results) {
                    load(&shown, columns, results);
                }
            }
            let turns = range.len().div_ceil(UNIT) * groups;
            let next = first + PANEL;
            let with_results = if next < rows.end { columns } else { &[] };
            let ahead = Ahead::of_panel(product, (weights, stride), next, range.clone(), with_results, turns);
            let mut outcome =
                Outcome { groups: results, size: group, columns, shown, complete: false, ahead };
            for (from, units) in range.clone().step_by(UNIT).zip(units.chunks(groups)) {
                let part = part(from, UNIT.min(range.end - from));
                outcome.complete = from + UNIT >= range.end;
                let results = &mut outcome;
                F::multiply(Work { part: &part, weights: first_row, stride, group, units, results, panel });
            }
        }
    }
}

/// # Safety
/// As for [`Results::load`].
#[target_feature(enable = "avx512f")]
unsafe fn load(shown: &Results, columns: &[Column], results: &mut GroupResults) {
    for (column, results) in columns.iter().zip(results) {
        // SAFETY: the caller's contract; arrays of 16 numbers.
        unsafe {
            let loaded = shown.load(column);
            _mm512_store_ps(results[0].as_mut_ptr(), loaded[0]);
            _mm512_store_ps(results[1].as_mut_ptr(), loaded[1]);
        }
    }
}
