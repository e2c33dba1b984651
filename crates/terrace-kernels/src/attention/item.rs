//! One item: rows of some key-value heads, and one partition or all of them.

#[cfg(target_arch = "x86_64")]
use super::GROUP_ROWS;
#[cfg(target_arch = "x86_64")]
use super::amx;
use super::merge;
use super::scratch::Scratch;
use super::softmax::{State, hides_all};
use super::{Call, HEADER, PARTITION, Plan, ROWS, TILE};
use crate::simd::Simd;
use std::ops::Range;

/// A row of an item.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// Its mask, from the first position on, or null.
    pub(super) mask: *const u8,
    pub(super) slope: f32,
    pub(super) head: usize,
    pub(super) token: usize,
}

/// The rows of an item and what they look at.
pub(super) struct Item<'a> {
    pub(super) plan: &'a Plan,
    pub(super) call: &'a Call,
    pub(super) scratch: Scratch,
    /// Keys and values of the first head.
    pub(super) keys: *const u8,
    pub(super) values: *const u8,
    /// Rows of all heads.
    pub(super) rows: &'a [Row],
    /// Rows of each head.
    pub(super) of_head: usize,
    pub(super) stream: usize,
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
        #[cfg(target_arch = "x86_64")]
        if plan.tiles {
            for head in 0..plan.heads {
                let queries = scratch.queries.add(head * of_head * plan.key_floats());
                let first = head * of_head.div_ceil(GROUP_ROWS);
                amx::arrange(&scratch.amx, queries, of_head, shape.key_length, first);
            }
        }
        #[cfg(target_arch = "x86_64")]
        let _tiles = (plan.tiles || plan.byte_tiles).then(|| amx::configure());
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
                    self.clear_sums();
                }
                for head in 0..self.plan.heads {
                    let rows = head * self.of_head..(head + 1) * self.of_head;
                    if seen[rows.clone()].contains(&true) {
                        self.tile::<S>(&tile, head, &seen[rows.clone()], &mut states[rows]);
                    }
                }
            }
        }
        #[cfg(target_arch = "x86_64")]
        if self.plan.tiles && !empty {
            // SAFETY: the caller's contract.
            unsafe { amx::write_sums(self) };
        }
        states
    }

    /// # Safety
    /// As for [`Plan::run`].
    #[inline(always)]
    unsafe fn clear_sums(&self) {
        // SAFETY: the caller's contract.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if self.plan.tiles {
                amx::clear_sums(self);
                return;
            }
            let floats = self.rows.len() * self.plan.value_floats();
            std::ptr::write_bytes(self.scratch.sums, 0, floats);
        }
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
}
