//! One item: rows of some key-value heads, and one partition or all of them.

use super::ahead::Ahead;
use super::cache::{BrainFloats, Floats, Halves, convert};
use super::dots::{Keys, scores};
use super::merge;
use super::softmax::{Scores, State, additions, hides_all, weigh};
use super::values::{self, Values};
use super::{Call, HEADER, PARTITION, Plan, ROWS, TILE};
use crate::CacheType;
use crate::matmul::{Column, PANEL, Product};
use crate::simd::Simd;
use std::ops::Range;

/// Most rows for which keys and values are converted each time that they are loaded, not once for all.
const FEW_ROWS: usize = 8;

/// A thread's buffers.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    queries: *mut f32,
    scores: *mut f32,
    sums: *mut f32,
    total: *mut f32,
    keys: *mut f32,
    values: *mut f32,
    /// Queries as blocks of bytes, and room for unpacked keys, where keys are multiplied as bytes.
    blocks: *mut f32,
    panel: *mut f32,
}

impl Scratch {
    /// Floats of each buffer.
    const fn sizes(plan: &Plan) -> [usize; 8] {
        let (key, value) = (plan.key_floats(), plan.value_floats());
        let (blocks, panel) = match &plan.byte_keys {
            Some(product) => (plan.rows * product.activation_bytes() / 4, Product::scratch_bytes() / 4),
            None => (0, 0),
        };
        [
            plan.rows * key,
            plan.rows * TILE,
            plan.rows * value,
            plan.rows * value,
            TILE * key,
            TILE * value,
            blocks,
            panel,
        ]
    }

    /// Floats of all buffers.
    pub(super) const fn floats(plan: &Plan) -> usize {
        let [a, b, c, d, e, f, g, h] = Self::sizes(plan);
        a + b + c + d + e + f + g + h
    }

    /// # Safety
    /// `at` is valid for [`Scratch::floats`].
    unsafe fn new(plan: &Plan, at: *mut f32) -> Self {
        let mut next = at;
        let [queries, scores, sums, total, keys, values, blocks, panel] = Self::sizes(plan).map(|size| {
            let this = next;
            // SAFETY: the caller's contract.
            next = unsafe { next.add(size) };
            this
        });
        Self { queries, scores, sums, total, keys, values, blocks, panel }
    }
}

/// A row of an item.
#[derive(Clone, Copy)]
struct Row {
    /// Its mask, from the first position on, or null.
    mask: *const u8,
    slope: f32,
    head: usize,
    token: usize,
}

/// The rows of an item and what they look at.
struct Item<'a> {
    plan: &'a Plan,
    call: &'a Call,
    scratch: Scratch,
    /// Keys and values of the first head.
    keys: *const u8,
    values: *const u8,
    /// Rows of all heads.
    rows: &'a [Row],
    /// Rows of each head.
    of_head: usize,
    stream: usize,
}

/// A head's part of an item.
struct Part {
    keys: *const u8,
    values: *const u8,
    queries: *const f32,
    scores: *mut f32,
    sums: *mut f32,
}

/// See [`Plan::run`].
///
/// # Safety
/// As for [`Plan::run`].
#[inline(always)]
pub(super) unsafe fn run<S: Simd>(
    plan: &Plan,
    call: &Call,
    item: usize,
    scratch: *mut f32,
    shared: *mut f32,
) {
    let shape = &plan.shape;
    let (partition, rest) =
        if plan.divided { (item % plan.partitions, item / plan.partitions) } else { (0, item) };
    let (block, rest) = (rest % plan.blocks, rest / plan.blocks);
    let head_groups = shape.kv_heads / plan.heads;
    let (kv_head, stream) = (rest % head_groups * plan.heads, rest / head_groups);
    let kv_stream = stream / (shape.streams / shape.kv_streams);
    let group = plan.group();
    let in_head = shape.tokens * group;
    let first = block * plan.rows;
    let of_head = plan.rows.min(in_head - first);
    let count = of_head * plan.heads;

    let mut rows = [Row { mask: std::ptr::null(), slope: 1.0, head: 0, token: 0 }; ROWS];
    for (i, row) in rows[..count].iter_mut().enumerate() {
        let (kv_head, in_block) = (kv_head + i / of_head, first + i % of_head);
        let (token, head) = (in_block / group, kv_head * group + in_block % group);
        let mask = call.mask.map_or(std::ptr::null(), |mask| {
            let offset = mask.rows.offset(token, head % mask.heads, stream % mask.streams);
            mask.rows.at.wrapping_add(offset)
        });
        *row = Row { mask, slope: slope(call.max_bias, head, shape.heads), head, token };
    }
    // SAFETY: the caller's contract.
    unsafe {
        let scratch = Scratch::new(plan, scratch);
        for (i, row) in rows[..count].iter().enumerate() {
            let from = call.queries.at.add(call.queries.offset(row.token, row.head, stream));
            let to = scratch.queries.add(i * plan.key_floats());
            std::ptr::write_bytes(to.add(shape.key_length), 0, plan.key_floats() - shape.key_length);
            std::ptr::copy_nonoverlapping(from, to.cast(), shape.key_length * 4);
            if let Some(product) = &plan.byte_keys {
                product.quantise(to, scratch.blocks.cast::<u8>().add(i * product.activation_bytes()));
            }
        }
        let keys = call.keys.at.add(call.keys.offset(0, kv_head, kv_stream));
        let values = call.values.at.add(call.values.offset(0, kv_head, kv_stream));
        let item = Item { plan, call, scratch, keys, values, rows: &rows[..count], of_head, stream };
        let partitions = if plan.divided { partition..partition + 1 } else { 0..plan.partitions };
        let mut states = [State::NOTHING; ROWS];
        for partition in partitions {
            let parts = item.partition::<S>(partition);
            if plan.divided {
                let first_row = (stream * shape.kv_heads + kv_head) * in_head + first;
                item.leave(partition, first_row, in_head, &parts, shared);
            } else {
                item.add::<S>(&mut states, &parts);
            }
        }
        if !plan.divided {
            item.finish::<S>(&states);
        }
    }
}

/// A head's slope, as ggml has it.
#[inline(always)]
fn slope(max_bias: f32, head: usize, heads: usize) -> f32 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    let power = 1 << heads.ilog2();
    if head < power {
        (-max_bias / power as f32).exp2().powf((head + 1) as f32)
    } else {
        (-max_bias / 2.0 / power as f32).exp2().powf((2 * (head - power) + 1) as f32)
    }
}

impl Item<'_> {
    /// Leaves a partition's result to be merged.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn leave(
        &self,
        partition: usize,
        first_row: usize,
        in_head: usize,
        parts: &[State; ROWS],
        shared: *mut f32,
    ) {
        let length = self.plan.value_floats();
        for (i, state) in parts[..self.rows.len()].iter().enumerate() {
            let row = first_row + i / self.of_head * in_head + i % self.of_head;
            let part = row * self.plan.partitions + partition;
            // SAFETY: the caller's contract.
            unsafe {
                let to = shared.add(part * self.plan.partial());
                *to = state.largest;
                *to.add(1) = state.sum;
                if state.sum != 0.0 {
                    std::ptr::copy_nonoverlapping(self.scratch.sums.add(i * length), to.add(HEADER), length);
                }
            }
        }
    }

    /// Adds a partition's result to those before it.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, states: &mut [State; ROWS], parts: &[State; ROWS]) {
        let length = self.plan.value_floats();
        for (i, (state, part)) in states.iter_mut().zip(parts).enumerate().take(self.rows.len()) {
            // SAFETY: the caller's contract.
            unsafe {
                let (total, sums) = (self.scratch.total.add(i * length), self.scratch.sums.add(i * length));
                merge::add::<S>(state, total, *part, sums, length);
            }
        }
    }

    /// Writes the rows.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, states: &[State; ROWS]) {
        let call = self.call;
        for (i, (row, state)) in self.rows.iter().zip(states).enumerate() {
            // SAFETY: the caller's contract.
            unsafe {
                let to = call.out.at.add(call.out.offset(row.token, row.head, self.stream)).cast();
                let sink = call.sinks.map(|sinks| *sinks.add(row.head));
                let total = self.scratch.total.add(i * self.plan.value_floats());
                merge::finish::<S>(*state, sink, total, to, self.plan.shape.value_length);
            }
        }
    }

    /// Computes a partition; the sums of rows whose state has a sum are in scratch.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn partition<S: Simd>(&self, partition: usize) -> [State; ROWS] {
        let positions = partition * PARTITION..self.plan.shape.positions.min((partition + 1) * PARTITION);
        let mut states = [State::NOTHING; ROWS];
        let mut empty = true;
        for first in positions.clone().step_by(TILE) {
            let tile = first..positions.end.min(first + TILE);
            let mut seen = [false; ROWS];
            let seen = &mut seen[..self.rows.len()];
            // SAFETY: the caller's contract.
            unsafe {
                self.look(&tile, seen);
                if !seen.contains(&true) {
                    continue;
                }
                if std::mem::take(&mut empty) {
                    let floats = self.rows.len() * self.plan.value_floats();
                    std::ptr::write_bytes(self.scratch.sums, 0, floats);
                }
                for head in 0..self.plan.heads {
                    let rows = head * self.of_head..(head + 1) * self.of_head;
                    if seen[rows.clone()].contains(&true) {
                        self.tile::<S>(&tile, head, &seen[rows.clone()], &mut states[rows]);
                    }
                }
            }
        }
        states
    }

    /// Which rows see any position of a tile.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn look(&self, tile: &Range<usize>, seen: &mut [bool]) {
        let mut before = None;
        for (row, seen) in self.rows.iter().zip(seen) {
            *seen = match before {
                Some((mask, seen)) if mask == row.mask => seen,
                // SAFETY: the caller's contract.
                _ => unsafe { row.mask.is_null() || !hides_all(row.mask.add(tile.start * 2), tile.len()) },
            };
            before = Some((row.mask, *seen));
        }
    }

    /// Computes a tile of a head.
    ///
    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, tile: &Range<usize>, head: usize, seen: &[bool], states: &mut [State]) {
        let (plan, call, scratch) = (self.plan, self.call, self.scratch);
        // SAFETY: the caller's contract.
        unsafe {
            let first = head * self.of_head;
            let part = Part {
                keys: self.keys.add(head * call.keys.head),
                values: self.values.add(head * call.values.head),
                queries: scratch.queries.add(first * plan.key_floats()),
                scores: scratch.scores.add(first * TILE),
                sums: scratch.sums.add(first * plan.value_floats()),
            };
            let shape = &plan.shape;
            let mut keys = self.ahead(
                tile,
                head,
                self.keys,
                call.keys.position,
                call.keys.head,
                shape.keys.row_bytes(shape.key_length),
            );
            let mut values = self.ahead(
                tile,
                head,
                self.values,
                call.values.position,
                call.values.head,
                shape.values.row_bytes(shape.value_length),
            );
            match &plan.byte_keys {
                Some(product) => self.byte_scores(product, tile, &part, first, seen, &mut keys),
                None => self.scores::<S>(tile, &part, seen, &mut keys),
            }
            let factors = self.weights::<S>(tile, &part, first, seen, states);
            self.add_values::<S>(tile, &part, seen, &factors, &mut values);
        }
    }

    /// What to request of the next tile while a head of this one is computed: some positions of all heads.
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
    unsafe fn scores<S: Simd>(&self, tile: &Range<usize>, part: &Part, seen: &[bool], ahead: &mut Ahead) {
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
        part: &Part,
        first: usize,
        seen: &[bool],
        ahead: &mut Ahead,
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
            let lines = ahead.share(tile.len().div_ceil(PANEL));
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
        part: &Part,
        first: usize,
        seen: &[bool],
        states: &mut [State],
    ) -> [f32; ROWS] {
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
        part: &Part,
        seen: &[bool],
        factors: &[f32; ROWS],
        ahead: &mut Ahead,
    ) {
        let (ty, length, stride) =
            (self.plan.shape.values, self.plan.shape.value_length, self.call.values.position);
        // SAFETY: the caller's contract.
        unsafe {
            let at = part.values.add(tile.start * stride);
            let values = Values { at, stride, length, count: tile.len() };
            let (weights, sums) = (part.scores.cast_const(), part.sums);
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

    /// How rows of the cache are loaded without converting them first, if they are.
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
