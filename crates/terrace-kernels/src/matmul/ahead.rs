//! Memory that is requested while a panel is multiplied: the next weights, and the places of the next results.
//!
//! Rows of a panel are more streams than a processor follows by itself, and their results lie far from each other. All at
//! once, they would be more than it waits for without stopping. A result that is not in a cache holds up all stores after it.

use super::lanes::prefetch;
use super::{Column, PANEL, Product};
use crate::memory::CacheLine;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ops::Range;

/// What is requested, a part in each turn.
pub(super) struct Ahead<'a> {
    weights: *const u8,
    /// Lines of weights, and those of a turn.
    lines: usize,
    lines_at_once: usize,
    /// Columns with results, and how many have their turn together.
    columns: &'a [Column],
    columns_at_once: usize,
    /// Row of the first result.
    first: usize,
    /// Turns so far.
    turn: Cell<usize>,
}

impl<'a> Ahead<'a> {
    /// Requests, in so many turns, weights of the panel that begins at row `first`, as many values of each row as `values`,
    /// and the columns' results from that row on. `weights` are of row 0.
    pub fn of_panel(
        product: &Product,
        (weights, stride): (*const u8, usize),
        first: usize,
        values: Range<usize>,
        columns: &'a [Column],
        turns: usize,
    ) -> Self {
        let share = |values: usize| PANEL * stride * values / product.length;
        let weights = weights.wrapping_add(first * stride + share(values.start));
        let lines = share(values.len()).div_ceil(size_of::<CacheLine>());
        let (lines_at_once, columns_at_once) = (lines.div_ceil(turns), columns.len().div_ceil(turns));
        Self { weights, lines, lines_at_once, columns, columns_at_once, first, turn: Cell::new(0) }
    }

    /// A turn's part; nothing once everything is requested.
    #[inline(always)]
    pub fn request(&self) {
        let turn = self.turn.replace(self.turn.get() + 1);
        let done = self.lines.min(turn * self.lines_at_once);
        let lines = self.lines_at_once.min(self.lines - done);
        let line = size_of::<CacheLine>();
        prefetch::<_MM_HINT_T1>(self.weights.wrapping_add(done * line), lines * line);
        let done = self.columns.len().min(turn * self.columns_at_once);
        let count = self.columns_at_once.min(self.columns.len() - done);
        for column in &self.columns[done..done + count] {
            let at = column.out.wrapping_add(self.first).cast_const().cast();
            prefetch::<_MM_HINT_ET0>(at, PANEL * size_of::<f32>());
        }
    }
}
