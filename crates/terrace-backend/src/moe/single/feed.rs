//! Thread 0's part of a node: requests experts from the store and hands out those that arrive.

use super::super::waves::Next;
use super::compute::{By, Item};
use super::state::{ExpertNode, ExpertRun, Inner};
use crate::error::BackendError;
use crate::layout::ManagedTensor;
use crate::tiles::tiled_from;
use std::ffi::{c_int, c_void};
use terrace_ggml::Tensor;
use terrace_ggml::cpu::blocked::{BlockedExpert, ThreadShare};
use terrace_store::{Computing, Store};

/// Reads the router's choice and requests the experts of this node's matrix, then those of the
/// block's other matrices.
pub fn start(run: &ExpertRun, node: &ExpertNode, dst: Tensor<'_>, inner: &mut Inner) {
    // SAFETY: the layout outlives the run.
    let tensor = unsafe { &*node.tensor };
    let stop = inner.stop;
    // SAFETY: lent by `begin` for the run.
    unsafe { &mut *inner.store }.computing(Computing::Experts(node.a_block()));
    // ggml's barrier lies between nodes, so no thread computes from leases of earlier nodes.
    inner.quiet = true;
    let attempt = || -> Result<(), BackendError> {
        let ids = dst.src(2).expect("MUL_MAT_ID has ids");
        // SAFETY: no other thread reads the routing before the node's first barrier.
        let first_of_block =
            unsafe { &mut *run.routing.get() }.read(ids, node.experts, None, || tensor.name.clone())?;
        inner.how = run.routing().how();
        if first_of_block {
            // SAFETY: the layout outlives the run.
            let siblings = node.siblings().iter().map(|sibling| unsafe { (*sibling.tensor).block(0) });
            let firsts = std::iter::once(tensor.block(0)).chain(siblings);
            // SAFETY: lent by `begin` for the run, and used by thread 0 only.
            unsafe { &mut *inner.observer }.block(firsts, node.experts, run.routing());
        }
        // SAFETY: lent by `begin` for the run.
        let store = unsafe { &mut *inner.store };
        // All threads have left earlier nodes, so their leases can be released.
        for earlier in &mut inner.fetches[..node.fetch] {
            if earlier.accepted > 0 {
                store.release(&mut earlier.fetch);
                earlier.accepted = 0;
            }
        }
        let touched = run.routing().touched();
        let complete = request(inner, store, touched, tensor, node.fetch)?;
        if complete {
            for sibling in node.siblings() {
                // SAFETY: the layout outlives the run.
                if !request(inner, store, touched, unsafe { &*sibling.tensor }, sibling.fetch)? {
                    break;
                }
            }
        }
        Ok(())
    };
    run.attempt(node, stop, attempt);
}

/// Starts or continues a node's fetch. Returns whether all its touched experts are leased or on
/// their way.
fn request(
    inner: &mut Inner,
    store: &mut Store,
    touched: &[u32],
    tensor: &ManagedTensor,
    fetch: usize,
) -> Result<bool, BackendError> {
    let state = &mut inner.fetches[fetch];
    if state.accepted == 0 {
        inner.blocks.clear();
        inner.blocks.extend(touched[state.from..].iter().map(|&e| tensor.block(e)));
        state.accepted = store.start_as(&mut state.fetch, &inner.blocks, inner.how)?;
    }
    Ok(state.from + state.accepted == touched.len())
}

/// Thread 0: waits until at least one expert has arrived, and hands out all that have.
pub fn publish(
    run: &ExpertRun,
    node: &ExpertNode,
    dst: Tensor<'_>,
    inner: &mut Inner,
    items: &mut Vec<Item>,
) -> Next {
    let stop = inner.stop;
    let mut next = Next::More;
    if !run.failure.is_any() {
        run.attempt(node, stop, || {
            next = collect(run, node, dst, inner, items)?;
            Ok(())
        });
    }
    if run.failure.is_any() { Next::Failed } else { next }
}

fn collect(
    run: &ExpertRun,
    node: &ExpertNode,
    dst: Tensor<'_>,
    inner: &mut Inner,
    items: &mut Vec<Item>,
) -> Result<Next, BackendError> {
    // SAFETY: the layout outlives the run; the store is lent by `begin`.
    let (tensor, store) = unsafe { (&*node.tensor, &mut *inner.store) };
    let touched = run.routing().touched();
    let total = touched.len();
    let mut ready = store.next(&mut inner.fetches[node.fetch].fetch)?;
    if ready.is_none() && inner.fetches[node.fetch].from + inner.fetches[node.fetch].accepted < total {
        if !inner.quiet {
            // Other threads may still compute from leases that this would release. So an empty wave
            // is published: once its barrier is passed, they are done.
            inner.quiet = true;
            return Ok(Next::More);
        }
        // This portion of the experts is computed, and the next one replaces it. Blocks requested
        // ahead may be in the way, so they are released first.
        for sibling in node.siblings() {
            let state = &mut inner.fetches[sibling.fetch];
            store.release(&mut state.fetch);
            state.accepted = 0;
        }
        let state = &mut inner.fetches[node.fetch];
        state.from += state.accepted;
        state.accepted = 0;
        store.release(&mut state.fetch);
        request(inner, store, touched, tensor, node.fetch)?;
        if inner.fetches[node.fetch].accepted == 0 {
            return Err(BackendError::NoRoom { tensor: tensor.name.clone() });
        }
        ready = store.next(&mut inner.fetches[node.fetch].fetch)?;
    }
    inner.quiet = false;
    let from = inner.fetches[node.fetch].from;
    while let Some(block) = ready {
        let touched = from + block.index;
        let weights: *const c_void = block.data.cast();
        let by = match &node.tile {
            Some(tile) if run.routing().rows(touched).len() >= tiled_from(tile) => By::Tiles,
            None if takes_blocked(run, dst, weights, touched) => By::Blocked,
            _ => By::Dots,
        };
        items.push(Item { touched, weights, by });
        ready = store.try_next(&mut inner.fetches[node.fetch].fetch)?;
    }
    let state = &inner.fetches[node.fetch];
    let last = state.from + state.accepted == total && state.fetch.is_exhausted();
    Ok(if last { Next::Last } else { Next::More })
}

/// Returns true if ggml's blocked kernel takes this expert. Found out by calling it for a thread that has
/// no rows.
fn takes_blocked(run: &ExpertRun, dst: Tensor<'_>, weights: *const c_void, touched: usize) -> bool {
    let idle = ThreadShare { ith: 0, nth: c_int::MAX as usize };
    let rows = run.routing().rows(touched);
    // SAFETY: with that many threads the first has no rows: nothing is read or written, only the
    // kernel's conditions are evaluated.
    unsafe {
        BlockedExpert::compute(dst, weights, rows, run.activations.as_ptr(), run.blocked.as_ptr(), idle)
    }
}
