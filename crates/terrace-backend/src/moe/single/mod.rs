//! MUL_MAT_ID on managed experts: a custom node that requests the chosen experts and computes them
//! in order of arrival.

mod compute;
mod feed;
mod sizes;
mod state;

pub use sizes::ScratchSizes;
pub use state::{ExpertNode, ExpertRun};

use super::activations::{convert, quantise};
use super::waves::Next;
use crate::tiles::tiled_from;
use compute::{Item, Tiled, compute};
use feed::{publish, start};
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;
use terrace_ggml::cpu::blocked::ThreadShare;
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_kernels::matmul::Product;
use terrace_store::Computing;

/// The custom node's function.
///
/// # Safety
/// `userdata` is an [`ExpertNode`] whose run is within `begin`..`end`; called by ggml on all
/// threads of the run.
pub unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, nth: c_int, userdata: *mut c_void) {
    // SAFETY: the executor put a live ExpertNode there; ggml passes the live node.
    let (node, dst) = unsafe { (&*userdata.cast::<ExpertNode>(), custom_node(dst)) };
    // SAFETY: the executor keeps it for as long as the graph is computed.
    let run = unsafe { &*node.shared };
    if run.failure.is_before(node.fetch) {
        return;
    }
    let share = ThreadShare { ith: ith.unsigned_abs() as usize, nth: nth.unsigned_abs() as usize };
    if share.ith == 0 {
        // SAFETY: thread 0 alone touches `inner` mutably, and no other thread reads it before the
        // barrier below.
        start(run, node, dst, unsafe { &mut *run.inner.get() });
    }
    let activations = run.activations.as_ptr();
    let input = dst.src(1).expect("MUL_MAT_ID has activations");
    if node.tile.as_ref().is_none_or(|tile| tiled_from(tile) > 1) {
        convert(&node.kernels, input, activations, share);
    }
    if let Some(tile) = &node.tile {
        quantise(tile, input, run.tiled.as_ptr(), share);
    }
    let compute = |items: &[Item], next_task: &AtomicUsize| {
        let blocked = run.blocked.as_ptr();
        let tiles = node.tile.as_ref().map(|tile| Tiled {
            tile,
            input: run.tiled.as_ptr(),
            panel: run.panels.as_ptr().cast::<u8>().wrapping_add(share.ith * Product::scratch_bytes()),
        });
        compute(&node.kernels, tiles, dst, run.routing(), items, next_task, activations, blocked, share);
    };
    if share.ith > 0 {
        // SAFETY: ggml calls this function once on each of its threads, and its own barrier lies
        // between two nodes.
        unsafe { run.waves.follow(share.nth, compute) };
        return;
    }
    // SAFETY: thread 0 alone touches `inner`.
    let publish = |items: &mut Vec<Item>| publish(run, node, dst, unsafe { &mut *run.inner.get() }, items);
    // SAFETY: as for `follow`.
    let end = unsafe { run.waves.lead(share.nth, publish, || (), compute) };
    // Leases stay until the next node's `start` or the end of the run, since other threads may still
    // compute.
    if end == Next::Last {
        // SAFETY: null, or within the executor's list, which does not change during the run.
        let next = unsafe { node.next.as_ref() };
        // SAFETY: thread 0 alone touches `inner` mutably; the store is lent by `begin` for the run.
        let store = unsafe { &mut *(*run.inner.get()).store };
        store.computing(Computing::Dense(next.map(ExpertNode::a_block)));
    }
}
