//! A tile of positions, for the rows of a key-value head.

use super::ahead::{Ahead, Both};
#[cfg(target_arch = "x86_64")]
use super::byte_values::{self, ByteValues};
use super::cache::{BrainFloats, Floats, Halves, convert};
use super::dots::{Keys, scores};
use super::item::Item;
use super::softmax::{Scores, State, additions, weigh};
use super::values::{self, Values};
use super::{ROWS, TILE};
use crate::CacheType;
use crate::matmul::{Column, PANEL, Product};
use crate::simd::Simd;
use std::ops::Range;

/// Most rows for which keys and values are converted each time that they are loaded, not once for all.
const FEW_ROWS: usize = 8;

/// A head's part of an item.
struct HeadPart {
    keys: *const u8,
    values: *const u8,
    queries: *const f32,
    scores: *mut f32,
    sums: *mut f32,
}

impl Item<'_> {
    /// Computes a tile of a head.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    pub(super) unsafe fn tile<S: Simd>(
        &self,
        tile: &Range<usize>,
        head: usize,
        seen: &[bool],
        states: &mut [State],
    ) {
        let (plan, call, scratch) = (self.plan, self.call, self.scratch);
        // SAFETY: the caller's contract.
        unsafe {
            let first = head * self.of_head;
            let part = HeadPart {
                keys: self.keys.add(head * call.keys.head),
                values: self.values.add(head * call.values.head),
                queries: scratch.queries.add(first * plan.key_floats()),
                scores: scratch.scores.add(first * TILE),
                sums: scratch.sums.add(first * plan.value_floats()),
            };
            let shape = &plan.shape;
            let keys = self.ahead(
                tile,
                head,
                self.keys,
                call.keys.position,
                call.keys.head,
                shape.keys.row_bytes(shape.key_length),
            );
            let values = self.ahead(
                tile,
                head,
                self.values,
                call.values.position,
                call.values.head,
                shape.values.row_bytes(shape.value_length),
            );
            let mut ahead = Both { keys, values };
            #[cfg(target_arch = "x86_64")]
            if plan.tiles {
                super::amx::tile(self, tile, head, seen, states, ahead);
                return;
            }
            match &plan.byte_keys {
                Some(product) => self.byte_scores(product, tile, &part, first, seen, &mut ahead),
                None => self.scores::<S>(tile, &part, seen, &mut ahead.keys),
            }
            let factors = self.weights::<S>(tile, &part, first, seen, states, &mut ahead);
            self.add_values::<S>(tile, &part, seen, &factors, &mut ahead);
        }
    }

    /// Part of the next tile to request while a head of this one is computed: some positions of all heads.
    #[inline(always)]
    fn ahead(
        &self,
        tile: &Range<usize>,
        head: usize,
        at: *const u8,
        position: usize,
        next_head: usize,
        bytes: usize,
    ) -> Ahead {
        let heads = self.plan.heads;
        let all = TILE.min(self.plan.shape.positions - tile.end);
        let (from, to) = (all * head / heads, all * (head + 1) / heads);
        let at = at.wrapping_add((tile.end + from) * position);
        Ahead::new(at, position, (heads - 1) * next_head + bytes, to - from)
    }

    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn scores<S: Simd>(&self, tile: &Range<usize>, part: &HeadPart, seen: &[bool], ahead: &mut Ahead) {
        let (ty, length, stride) =
            (self.plan.shape.keys, self.plan.shape.key_length, self.call.keys.position);
        // SAFETY: the caller's contract.
        unsafe {
            let at = part.keys.add(tile.start * stride);
            let keys = Keys { at, stride, length, count: tile.len() };
            let (queries, to) = (part.queries, part.scores);
            match Self::direct(ty, length, seen.len()) {
                Some(Direct::Floats) => scores::<S, Floats>(queries, seen, &keys, to, ahead),
                Some(Direct::Halves) => scores::<S, Halves>(queries, seen, &keys, to, ahead),
                Some(Direct::BrainFloats) => scores::<S, BrainFloats>(queries, seen, &keys, to, ahead),
                None => {
                    let (scratch, floats) = (self.scratch.keys, self.plan.key_floats());
                    self.convert_all::<S>(ty, at, stride, length, tile.len(), scratch, floats);
                    let at = scratch.cast_const().cast();
                    let keys = Keys { at, stride: floats * 4, length: floats, count: tile.len() };
                    scores::<S, Floats>(queries, seen, &keys, to, ahead);
                }
            }
        }
    }

    /// Scores of quantised queries and keys: the keys are rows of a matrix, the queries columns.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn byte_scores(
        &self,
        product: &Product,
        tile: &Range<usize>,
        part: &HeadPart,
        first: usize,
        seen: &[bool],
        ahead: &mut Both,
    ) {
        let stride = self.call.keys.position;
        // SAFETY: the caller's contract.
        unsafe {
            let mut columns = [Column { input: std::ptr::null(), out: std::ptr::null_mut() }; ROWS];
            let mut count = 0;
            for (row, _) in seen.iter().enumerate().filter(|(_, seen)| **seen) {
                let input = (first + row) * product.activation_bytes();
                columns[count] = Column {
                    input: self.scratch.blocks.cast::<u8>().add(input),
                    out: part.scores.add(row * TILE),
                };
                count += 1;
            }
            let keys = part.keys.add(tile.start * stride);
            // Few at a time, as there are no opportunities within a panel: the rest comes later.
            let lines = ahead.share(8 * tile.len().div_ceil(PANEL));
            for from in (0..tile.len()).step_by(PANEL) {
                ahead.request(lines);
                let rows = from..tile.len().min(from + PANEL);
                product.run(keys, stride, rows, &columns[..count], self.scratch.panel.cast());
            }
        }
    }

    /// Turns scores into weights; returns the factors of what was summed before.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn weights<S: Simd>(
        &self,
        tile: &Range<usize>,
        part: &HeadPart,
        first: usize,
        seen: &[bool],
        states: &mut [State],
        ahead: &mut Both,
    ) -> [f32; ROWS] {
        let lines = if self.plan.byte_keys.is_some() { ahead.share(4 * seen.len()) } else { 0 };
        let how = Scores { scale: self.call.scale, softcap: self.call.softcap };
        let mut factors = [1.0; ROWS];
        let mut added = [0.0; TILE];
        let mut before = None;
        for (i, &seen) in seen.iter().enumerate() {
            let row = &self.rows[first + i];
            // SAFETY: the caller's contract.
            unsafe {
                let scores = part.scores.add(i * TILE);
                if !seen {
                    std::ptr::write_bytes(scores, 0, TILE);
                    continue;
                }
                if before != Some((row.mask, row.slope)) {
                    let mask = row.mask.wrapping_add(if row.mask.is_null() { 0 } else { tile.start * 2 });
                    additions::<S>(mask, row.slope, tile.len(), &mut added);
                    before = Some((row.mask, row.slope));
                }
                ahead.request(lines);
                factors[i] = weigh::<S>(scores, &added, how, &mut states[i]);
            }
        }
        factors
    }

    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn add_values<S: Simd>(
        &self,
        tile: &Range<usize>,
        part: &HeadPart,
        seen: &[bool],
        factors: &[f32; ROWS],
        ahead: &mut Both,
    ) {
        let (ty, length, stride) =
            (self.plan.shape.values, self.plan.shape.value_length, self.call.values.position);
        // SAFETY: the caller's contract.
        unsafe {
            let at = part.values.add(tile.start * stride);
            let (weights, sums) = (part.scores.cast_const(), part.sums);
            #[cfg(target_arch = "x86_64")]
            if self.plan.byte_values {
                let tiles = self.plan.byte_tiles;
                let values = ByteValues { at, stride, length, count: tile.len(), ty, tiles };
                let scratch = self.scratch.value_panel;
                byte_values::add(weights, &factors[..seen.len()], seen, &values, sums, scratch, ahead);
                return;
            }
            let ahead = &mut ahead.values;
            let values = Values { at, stride, length, count: tile.len() };
            match Self::direct(ty, length, seen.len()) {
                Some(Direct::Floats) => {
                    values::add::<S, Floats>(weights, factors, seen, &values, sums, ahead);
                }
                Some(Direct::Halves) => {
                    values::add::<S, Halves>(weights, factors, seen, &values, sums, ahead);
                }
                Some(Direct::BrainFloats) => {
                    values::add::<S, BrainFloats>(weights, factors, seen, &values, sums, ahead);
                }
                None => {
                    let (scratch, floats) = (self.scratch.values, self.plan.value_floats());
                    self.convert_all::<S>(ty, at, stride, length, tile.len(), scratch, floats);
                    let at = scratch.cast_const().cast();
                    let values = Values { at, stride: floats * 4, length: floats, count: tile.len() };
                    values::add::<S, Floats>(weights, factors, seen, &values, sums, ahead);
                }
            }
        }
    }

    /// Loads rows of the cache without converting them first, if possible.
    #[inline(always)]
    fn direct(ty: CacheType, length: usize, rows: usize) -> Option<Direct> {
        // Rows in scratch, which sums and queries have in common with them, are padded to the most lanes.
        if !length.is_multiple_of(crate::simd::MOST_LANES) {
            return None;
        }
        match ty {
            CacheType::F32 => Some(Direct::Floats),
            CacheType::F16 if rows <= FEW_ROWS => Some(Direct::Halves),
            CacheType::Bf16 if rows <= FEW_ROWS => Some(Direct::BrainFloats),
            _ => None,
        }
    }

    /// Converts the rows of a tile, each to `floats` floats.
    ///
    /// # Safety
    /// `from` is valid for the rows, `to` for what they become.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "rows here and there")]
    unsafe fn convert_all<S: Simd>(
        &self,
        ty: CacheType,
        from: *const u8,
        stride: usize,
        length: usize,
        count: usize,
        to: *mut f32,
        floats: usize,
    ) {
        let padded = length.next_multiple_of(S::LANES);
        for i in 0..count {
            // SAFETY: the caller's contract.
            unsafe {
                convert::<S>(ty, from.add(i * stride), length, to.add(i * floats));
                std::ptr::write_bytes(to.add(i * floats + padded), 0, floats - padded);
            }
        }
    }
}

enum Direct {
    Floats,
    Halves,
    BrainFloats,
}
