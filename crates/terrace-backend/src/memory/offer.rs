//! Offers streamed matrices to devices that compute large batches, and withholds experts in RAM that lanes
//! compute.
//!
//! ggml's scheduler gives an operation to a device that asks for large batches only if its weight is
//! host memory, and copies the weight there: from its address if it is host memory, otherwise by the
//! buffer's `get_tensor`. Streamed matrices have no bytes at their addresses. So they are host memory
//! exactly where the scheduler places an operation ([`terrace_ggml::pin::scheduler`]). Experts in RAM, and
//! their biases, are not host memory there if lanes are to compute the batch. Any other question is answered
//! with what is true.

use std::sync::atomic::{AtomicBool, Ordering};
use terrace_ggml::pin::scheduler::{self, Weights};

/// True if streamed matrices are offered in this process: by runs, which report reads that fail in
/// `get_tensor`, and not by the plug-in, whose host would not notice them.
static OFFERS: AtomicBool = AtomicBool::new(false);

/// Offers streamed matrices from now on.
pub fn begin() {
    OFFERS.store(true, Ordering::Relaxed);
}

/// Returns true if streamed weights are offered now.
pub fn is_offered() -> bool {
    scheduler::places_operation(Weights::Streamed) && OFFERS.load(Ordering::Relaxed)
}

/// Returns true if experts in RAM are withheld now.
pub fn is_withheld() -> bool {
    scheduler::places_operation(Weights::InRam)
}
