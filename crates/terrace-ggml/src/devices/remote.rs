//! Servers of ggml's RPC protocol that end while they are used.
//!
//! ggml gives up the process when a connection ends. (One that stays, with nothing at its other end, is waited for.) Where such
//! devices hold nothing but copies of experts, the process can do without them: ggml's thread that found out is then stopped for
//! ever, and so is every thread that waits for it inside ggml. From then on nothing may be asked of remote devices: which of
//! them was lost is not said.

use crate::handles::{BufferTypeHandle, DeviceHandle};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// What ggml-rpc.cpp says when a connection has ended, or cannot be made again.
const GONE: [&str; 3] = ["Remote RPC server crashed", "RPC handshake failed", "Failed to connect to"];

/// There are copies on remote devices, computed by threads that may be stopped.
static COPIES: AtomicBool = AtomicBool::new(false);
/// A model has weights there, or computes there itself.
static NEEDED: AtomicBool = AtomicBool::new(false);
static LOST: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread, one of Rust's, may be stopped.
    static MAY_STOP: Cell<bool> = const { Cell::new(false) };
}

/// This thread may be stopped: threads that wait for it look at [`lost`].
pub fn may_stop_this_thread() {
    MAY_STOP.set(true);
}

/// Whether a server of remote devices is gone. Nothing may be asked of any remote device then.
pub fn lost() -> bool {
    LOST.load(Ordering::Acquire)
}

/// From now on remote devices hold copies, and their users look at [`lost`] while they wait.
pub(crate) fn hold_copies() {
    COPIES.store(true, Ordering::Release);
}

/// A model is about to be loaded to these devices and buffer types: if one is remote, its loss is the process's end.
pub(crate) fn need(
    devices: impl Iterator<Item = DeviceHandle>,
    buffers: impl Iterator<Item = BufferTypeHandle>,
) {
    let buffers = buffers.filter_map(BufferTypeHandle::device);
    if devices.chain(buffers).any(DeviceHandle::is_remote) {
        NEEDED.store(true, Ordering::Release);
    }
}

/// Called with ggml's last words, on the thread that says them. Returns unless they are of a lost server that the process can do
/// without.
pub(crate) fn stop_if_lost(words: &str) {
    if !is_loss(words) {
        return;
    }
    // The thread through which ggml talks to the server may be stopped, which has no name. Rust's threads that come here by
    // themselves have one: only for some do the waiting ones look at `lost`.
    let waited_for = std::thread::current().name().is_some() && !MAY_STOP.get();
    if waited_for || NEEDED.load(Ordering::Acquire) || !COPIES.load(Ordering::Acquire) {
        return;
    }
    LOST.store(true, Ordering::Release);
    loop {
        std::thread::park();
    }
}

/// Whether these are ggml's words of a lost server.
pub(crate) fn is_loss(words: &str) -> bool {
    GONE.iter().any(|gone| words.contains(gone))
}
