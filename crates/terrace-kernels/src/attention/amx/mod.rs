//! Attention over 16-bit floats with AMX.
//!
//! Queries and weights are sums of two BF16, which leaves 16 bits of each; a binary16 is exactly such a sum. A product is the
//! sum of three products of these parts; that of the two low ones is left out.
//!
//! Scores lie transposed: keys are multiplied as they come, in tiles of 16, by queries that are arranged once, and a
//! vector has a key's scores for [`TILE`] rows. So nothing is summed across lanes. Groups of as many rows go through
//! softmax and values one after the other. An item with fewer rows computes the same, so that a token's bits do not depend
//! on what is computed with it.

mod cached;
mod products;
mod softmax;

use super::ahead::{Both, Spread};
use super::cache::{BrainFloats, Halves};
use super::item::Item;
use super::scratch::sum;
use super::softmax::State;
use super::{GROUP_ROWS, Plan, ROWS, Rows, Shape, TILE as POSITIONS};
use crate::CacheType;
use crate::simd::tiles::{TILE, Tiles};
use cached::Cache;
use std::ops::Range;

/// Values of 16 bits in a row of a tile, and so positions or values that a product of tiles sums up.
const STEP: usize = 32;
/// Numbers of 32 bits of a tile.
const WORDS: usize = TILE * TILE;
/// Parts of a number: high and low.
const PARTS: usize = 2;
/// Steps of 16 keys, or tiles of values, that are converted before they are multiplied: few enough for the first-level cache.
const CHUNK: usize = 4;
/// Tiles of 16 numbers of values in a chunk.
const CHUNK_TILES: usize = CHUNK / (POSITIONS / STEP);
/// Most groups of a head.
const GROUPS: usize = ROWS / GROUP_ROWS;
const _: () = assert!(GROUP_ROWS == TILE, "a group has a row of a tile for each of its rows");

/// Least query heads of each key-value head. With four, single tokens take almost twice as long as with vectors: converting a
/// key takes as long for one head as for sixteen.
const LEAST_GROUP: usize = 8;

/// Returns true if these kernels compute attention of this shape. The number of tokens has no influence: they have the same bits
/// in all.
pub(super) fn computes(shape: &Shape) -> bool {
    let halves = |ty| matches!(ty, CacheType::F16 | CacheType::Bf16);
    halves(shape.keys)
        && halves(shape.values)
        && shape.key_length.is_multiple_of(STEP)
        && shape.value_length.is_multiple_of(TILE)
        && shape.heads / shape.kv_heads >= LEAST_GROUP
}

/// Floats of scratch memory.
pub(super) const fn scratch_floats(plan: &Plan) -> usize {
    sum(&Scratch::sizes(plan))
}

/// A thread's buffers.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    /// Tiles of queries: for each group and step high and low parts.
    queries: *mut u32,
    /// A chunk of keys or values: for each tile high and low parts.
    chunk: *mut u32,
    /// Scores: for each group and position a vector of rows.
    scores: *mut f32,
    /// Additions to a group's scores.
    additions: *mut f32,
    /// A group's weights: high and low parts, a vector of rows for each two positions.
    pairs: *mut u32,
    /// Weights as tiles: for each group and step high and low parts, a row for each row.
    weights: *mut u32,
    /// Sums as tiles: for each group and 16 numbers of values, a row for each row.
    sums: *mut f32,
}

impl Scratch {
    const fn sizes(plan: &Plan) -> [usize; 7] {
        let in_head = plan.shape.tokens * plan.group();
        let of_head = if in_head < plan.rows { in_head } else { plan.rows };
        let groups = plan.heads * of_head.div_ceil(GROUP_ROWS);
        [
            groups * (plan.shape.key_length / STEP) * PARTS * WORDS,
            CHUNK * PARTS * WORDS,
            GROUPS * POSITIONS * TILE,
            POSITIONS * TILE,
            PARTS * POSITIONS / 2 * TILE,
            GROUPS * PARTS * POSITIONS / 2 * TILE,
            groups * TILE * plan.shape.value_length,
        ]
    }

    /// # Safety
    /// `at` is valid for [`scratch_floats`].
    pub(super) const unsafe fn new(plan: &Plan, at: *mut f32) -> Self {
        let [queries, chunk, scores, additions, pairs, weights, _] = Self::sizes(plan);
        // SAFETY: the caller's contract: one buffer after the other.
        unsafe {
            let chunk_at = at.add(queries);
            let scores_at = chunk_at.add(chunk);
            let additions_at = scores_at.add(scores);
            let pairs_at = additions_at.add(additions);
            let weights_at = pairs_at.add(pairs);
            Self {
                queries: at.cast(),
                chunk: chunk_at.cast(),
                scores: scores_at,
                additions: additions_at,
                pairs: pairs_at.cast(),
                weights: weights_at.cast(),
                sums: weights_at.add(weights),
            }
        }
    }
}

/// A head's groups, and buffers of what they are multiplied with.
struct Groups {
    count: usize,
    queries: *const u32,
    chunk: *mut u32,
    scores: *mut f32,
    weights: *const u32,
    sums: *mut f32,
}

/// Sets the thread's tiles for the functions of this module.
///
/// # Safety
/// The machine has AMX, and the process may use it.
pub(super) unsafe fn configure() -> Tiles {
    // SAFETY: the caller's contract.
    unsafe { Tiles::configure(TILE, 64) }
}

/// Arranges a head's queries, `length` floats each, those of its first group as group number `group`.
///
/// # Safety
/// `queries` is valid for so many rows; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn arrange(
    scratch: &Scratch,
    queries: *const f32,
    rows: usize,
    length: usize,
    group: usize,
) {
    let tiles = length / STEP * PARTS * WORDS;
    for (i, first) in (0..rows).step_by(TILE).enumerate() {
        // SAFETY: the caller's contract.
        unsafe {
            let from = queries.add(first * length);
            cached::arrange(from, (rows - first).min(TILE), length, scratch.queries.add((group + i) * tiles));
        }
    }
}

/// Sets an item's sums to zero.
///
/// # Safety
/// As for [`Plan::run`]; the plan is one that these kernels compute.
#[inline(always)]
pub(super) unsafe fn clear_sums(item: &Item<'_>) {
    let groups = item.plan.heads * item.of_head.div_ceil(GROUP_ROWS);
    let floats = groups * TILE * item.plan.shape.value_length;
    // SAFETY: the caller's contract: scratch memory has room for them.
    unsafe { std::ptr::write_bytes(item.scratch.amx.sums, 0, floats) }
}

/// Writes an item's sums as rows.
///
/// # Safety
/// As for [`clear_sums`].
#[inline(always)]
pub(super) unsafe fn write_sums(item: &Item<'_>) {
    let (length, groups) = (item.plan.shape.value_length, item.of_head.div_ceil(GROUP_ROWS));
    for row in 0..item.rows.len() {
        let (head, in_head) = (row / item.of_head, row % item.of_head);
        let group = head * groups + in_head / TILE;
        // SAFETY: the caller's contract.
        unsafe {
            let tiles = item.scratch.amx.sums.add(group * TILE * length);
            products::write_row(tiles, in_head % TILE, length, item.scratch.sums.add(row * length));
        }
    }
}

/// Computes a tile of positions for a head.
///
/// # Safety
/// As for [`Plan::run`], within the life of what [`configure`] returned; the plan is one that these kernels compute.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn tile(
    item: &Item<'_>,
    tile: &Range<usize>,
    head: usize,
    seen: &[bool],
    states: &mut [State],
    ahead: Both,
) {
    let (plan, call) = (item.plan, item.call);
    let (scratch, shape) = (&item.scratch.amx, &plan.shape);
    let count = item.of_head.div_ceil(GROUP_ROWS);
    // SAFETY: the caller's contract.
    unsafe {
        let groups = Groups {
            count,
            queries: scratch.queries.add(head * count * (shape.key_length / STEP) * PARTS * WORDS),
            chunk: scratch.chunk,
            scores: scratch.scores,
            weights: scratch.weights,
            sums: scratch.sums.add(head * count * TILE * shape.value_length),
        };
        let cache = |at: *const u8, rows: &Rows<*const u8>, length: usize| Cache {
            at: at.wrapping_add(head * rows.head + tile.start * rows.position),
            stride: rows.position,
            length,
            count: tile.len(),
        };
        let keys = cache(item.keys, &call.keys, shape.key_length);
        let values = cache(item.values, &call.values, shape.value_length);
        let units = products::units_of_scores(&keys)
            + count * softmax::UNITS
            + products::units_of_values(&values, count);
        let ahead = &mut Spread::new(ahead, units);
        if shape.keys == CacheType::F16 {
            products::scores::<Halves>(&keys, &groups, ahead);
        } else {
            products::scores::<BrainFloats>(&keys, &groups, ahead);
        }
        let mut groups_seen = [false; GROUPS];
        for (group, group_seen) in groups_seen[..count].iter_mut().enumerate() {
            let first = group * TILE;
            let rows = first..item.of_head.min(first + TILE);
            *group_seen = seen[rows.clone()].contains(&true);
            if *group_seen {
                let in_item = head * item.of_head + first;
                let of_group = &item.rows[in_item..in_item + rows.len()];
                let factors = softmax::weigh(scratch, group, call, tile, of_group, &mut states[rows], ahead);
                if let Some(factors) = factors {
                    let sums = groups.sums.add(first * shape.value_length);
                    products::scale(sums, shape.value_length, &factors);
                }
            }
        }
        let seen = &groups_seen[..count];
        if shape.values == CacheType::F16 {
            products::values::<Halves>(&values, &groups, seen, ahead);
        } else {
            products::values::<BrainFloats>(&values, &groups, seen, ahead);
        }
    }
}
