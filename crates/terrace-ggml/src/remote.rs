//! Servers of ggml's RPC protocol that end while they are used.
//!
//! ggml gives up the process when one does not answer. Where such devices hold nothing but copies of experts, the process can
//! do without them: ggml's thread that found out is then stopped for ever, and so is whoever waits for it inside ggml. From
//! then on nobody may ask anything of remote devices: which of them was lost is not said.

use crate::buffer::BufferTypeHandle;
use crate::devices::DeviceHandle;
use std::sync::atomic::{AtomicBool, Ordering};

/// What ggml says of a server that does not answer (`RPC_STATUS_ASSERT` in ggml-rpc.cpp).
const GONE: &str = "Remote RPC server crashed";

/// There are copies on remote devices, computed by threads that may be stopped.
static COPIES: AtomicBool = AtomicBool::new(false);
/// A model has weights there, or computes there itself.
static NEEDED: AtomicBool = AtomicBool::new(false);
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether a server of remote devices is gone. Nothing may be asked of any remote device then.
pub fn lost() -> bool {
    LOST.load(Ordering::Acquire)
}

/// From now on remote devices hold copies, and whoever uses these looks at [`lost`] while it waits.
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
    if !words.contains(GONE) {
        return;
    }
    // Threads with names are Rust's, and somebody waits for them who does not look at `lost`; ggml's have none.
    let ours = std::thread::current().name().is_some();
    if ours || NEEDED.load(Ordering::Acquire) || !COPIES.load(Ordering::Acquire) {
        return;
    }
    LOST.store(true, Ordering::Release);
    loop {
        std::thread::park();
    }
}

/// Whether these are ggml's words of a lost server.
pub(crate) fn is_loss(words: &str) -> bool {
    words.contains(GONE)
}
