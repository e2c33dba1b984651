//! What ggml's scheduler has just asked on this thread, and what follows for the next answer: see
//! [`super::offer`], which notes the questions.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The last questions on this thread.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asked {
    /// Anything else.
    #[default]
    Other,
    /// Whether the device computes with the buffer type of streamed weights.
    Buffers,
    /// After that, whether it computes a product with one of them.
    Product,
    /// Whether the device computes with the buffer type of weights in RAM.
    InRam,
    /// After that, whether it computes a part of an MoE block that is Terrace's in this batch.
    Experts,
}

/// Whether streamed matrices are offered in this process: by runs, which report reads that fail in
/// `get_tensor`, and not by the plug-in, whose host would not notice them.
static OFFERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    pub(super) static ASKED: Cell<Asked> = const { Cell::new(Asked::Other) };
}

/// Offers streamed matrices from now on.
pub fn begin() {
    OFFERS.store(true, Ordering::Relaxed);
}

/// Notes that a graph is computed.
pub fn computing() {
    ASKED.set(Asked::Other);
}

/// Whether experts in RAM are withheld now. The next question is another one.
pub fn is_withheld() -> bool {
    let withheld = ASKED.get() == Asked::Experts;
    if withheld {
        ASKED.set(Asked::Other);
    }
    withheld
}

/// Whether streamed weights are offered now. The next question is another one.
pub fn take() -> bool {
    ASKED.take() == Asked::Product && OFFERS.load(Ordering::Relaxed)
}
