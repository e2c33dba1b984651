//! Results of partitions become rows.

use super::softmax::{State, power};
use super::{Call, HEADER, Plan};
use crate::simd::{MOST_LANES, Simd};

/// Adds a partition's result to those before it. Before the first, `total` may be anything.
///
/// # Safety
/// `total` and `part_sums` are valid for `length` floats, a multiple of the lanes.
#[inline(always)]
pub(super) unsafe fn add<S: Simd>(
    state: &mut State,
    total: *mut f32,
    part: State,
    part_sums: *const f32,
    length: usize,
) {
    if part.sum == 0.0 {
        return;
    }
    if state.sum == 0.0 {
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy(part_sums, total, length) };
        *state = part;
        return;
    }
    let largest = state.largest.max(part.largest);
    // SAFETY: the caller's contract.
    unsafe {
        let old = if largest == state.largest { 1.0 } else { power::<S>(state.largest - largest) };
        let new = if largest == part.largest { 1.0 } else { power::<S>(part.largest - largest) };
        let (old_factor, new_factor) = (S::splat(old), S::splat(new));
        for i in (0..length).step_by(S::LANES) {
            let sum = S::mul(old_factor, S::load(total.add(i)));
            S::store(total.add(i), S::fma(new_factor, S::load(part_sums.add(i)), sum));
        }
        *state = State { largest, sum: state.sum * old + part.sum * new };
    }
}

/// Divides a row by the sum of its weights, a sink's among them, and writes it.
///
/// # Safety
/// `total` is valid for the padded row, `to` for `length` floats.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd>(
    mut state: State,
    sink: Option<f32>,
    total: *const f32,
    to: *mut f32,
    length: usize,
) {
    // SAFETY: the caller's contract; the rest goes through a buffer of a vector.
    unsafe {
        if state.sum == 0.0 {
            std::ptr::write_bytes(to, 0, length);
            return;
        }
        let mut factor = 1.0;
        if let Some(sink) = sink {
            if sink > state.largest {
                factor = power::<S>(state.largest - sink);
                state.sum = state.sum * factor + 1.0;
            } else {
                state.sum += power::<S>(sink - state.largest);
            }
        }
        let by = S::splat(factor / state.sum);
        let whole = length / S::LANES * S::LANES;
        for i in (0..whole).step_by(S::LANES) {
            S::store(to.add(i), S::mul(by, S::load(total.add(i))));
        }
        if whole < length {
            let mut rest = [0.0f32; MOST_LANES];
            S::store(rest.as_mut_ptr(), S::mul(by, S::load(total.add(whole))));
            std::ptr::copy_nonoverlapping(rest.as_ptr(), to.add(whole), length - whole);
        }
    }
}

/// Merges the partitions of a row.
///
/// # Safety
/// As for [`Plan::merge`].
#[inline(always)]
pub(super) unsafe fn run<S: Simd>(plan: &Plan, call: &Call, index: usize, shared: *mut f32) {
    let shape = &plan.shape;
    let rows = shape.tokens * plan.group();
    let (stream, kv_head, row) = (index / rows / shape.kv_heads, index / rows % shape.kv_heads, index % rows);
    let (token, head) = (row / plan.group(), kv_head * plan.group() + row % plan.group());
    let length = plan.value_floats();
    // SAFETY: the caller's contract: a header and a row for each partition. The first is the row to add to.
    unsafe {
        let parts = shared.add(index * plan.partitions * plan.partial());
        let total = parts.add(HEADER);
        let mut state = State { largest: *parts, sum: *parts.add(1) };
        for partition in 1..plan.partitions {
            let part = parts.add(partition * plan.partial());
            let part_state = State { largest: *part, sum: *part.add(1) };
            add::<S>(&mut state, total, part_state, part.add(HEADER), length);
        }
        let to = call.out.at.add(call.out.offset(token, head, stream)).cast();
        let sink = call.sinks.map(|sinks| *sinks.add(head));
        finish::<S>(state, sink, total, to, shape.value_length);
    }
}
