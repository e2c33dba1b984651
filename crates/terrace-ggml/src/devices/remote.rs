//! Handles RPC servers that end while they are in use.
//!
//! ggml aborts the process when a connection ends. (It waits for a connection that stays open with
//! nothing at its other end.) Where remote devices hold only copies of experts, the process can do
//! without them: ggml's thread that noticed the loss is then stopped for ever, and so is every
//! thread that waits for it inside ggml. From then on no remote device may be used, because ggml
//! does not say which one was lost.

use crate::handles::{BufferTypeHandle, DeviceHandle};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages of ggml-rpc.cpp when a connection has ended or cannot be made again.
const GONE: [&str; 3] = ["Remote RPC server crashed", "RPC handshake failed", "Failed to connect to"];

/// Whether remote devices hold copies, computed by threads that may be stopped.
static COPIES: AtomicBool = AtomicBool::new(false);
/// Whether a model has weights on remote devices, or computes there itself.
static NEEDED: AtomicBool = AtomicBool::new(false);
static LOST: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this Rust thread may be stopped.
    static MAY_STOP: Cell<bool> = const { Cell::new(false) };
}

/// Declares that this thread may be stopped. Threads that wait for it have to check [`lost`].
pub fn may_stop_this_thread() {
    MAY_STOP.set(true);
}

/// Whether an RPC server is gone. No remote device may be used then.
pub fn lost() -> bool {
    LOST.load(Ordering::Acquire)
}

/// Notes that remote devices hold copies, and that their users check [`lost`] while they wait.
pub(crate) fn hold_copies() {
    COPIES.store(true, Ordering::Release);
}

/// Notes that a model is about to be loaded to these devices and buffer types. If one is remote,
/// losing it ends the process.
pub(crate) fn need(
    devices: impl Iterator<Item = DeviceHandle>,
    buffers: impl Iterator<Item = BufferTypeHandle>,
) {
    let buffers = buffers.filter_map(BufferTypeHandle::device);
    if devices.chain(buffers).any(DeviceHandle::is_remote) {
        NEEDED.store(true, Ordering::Release);
    }
}

/// Called with ggml's abort message, on the aborting thread. Does not return if the message is
/// about a lost server that the process can do without.
pub(crate) fn stop_if_lost(words: &str) {
    if !is_loss(words) {
        return;
    }
    // ggml's own thread that talks to the server has no name and may be stopped. Rust's threads
    // that get here have names, and only for some of them do waiting threads check `lost`.
    let waited_for = std::thread::current().name().is_some() && !MAY_STOP.get();
    if waited_for || NEEDED.load(Ordering::Acquire) || !COPIES.load(Ordering::Acquire) {
        return;
    }
    LOST.store(true, Ordering::Release);
    loop {
        std::thread::park();
    }
}

/// Whether this is ggml's message about a lost server.
pub(crate) fn is_loss(words: &str) -> bool {
    GONE.iter().any(|gone| words.contains(gone))
}
