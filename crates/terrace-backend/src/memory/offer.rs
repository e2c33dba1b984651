//! Offers streamed matrices to devices that compute large batches.
//!
//! ggml's scheduler gives an operation to a device that asks for large batches only if its weight is
//! host memory, and copies the weight there: from its address if it is host memory, otherwise by the
//! buffer's `get_tensor`. Streamed matrices have no bytes at their addresses. So they are host memory
//! exactly where the scheduler decides (`ggml_backend_sched_backend_id_from_cur`): it asks the
//! weight's device for the buffer type and then for the operation, and next whether the buffer is on
//! the host. Any other sequence of questions, on this thread, is answered with what is true.

use crate::memory::places::Places;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::{Op, Tensor};

/// The last questions on this thread.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Asked {
    /// Anything else.
    #[default]
    Other,
    /// Whether the device computes with the buffer type of streamed weights.
    Buffers,
    /// After that, whether it computes a product with one of them.
    Product,
}

/// Whether streamed matrices are offered in this process: by runs, which report reads that fail in
/// `get_tensor`, and not by the plug-in, whose host would not notice them.
static OFFERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ASKED: Cell<Asked> = const { Cell::new(Asked::Other) };
}

/// Offers streamed matrices from now on.
pub fn begin() {
    OFFERS.store(true, Ordering::Relaxed);
}

/// Notes that the device is asked for a buffer type. `managed`: it is that of streamed weights.
pub fn asked_for_buffers(managed: bool) {
    ASKED.set(if managed { Asked::Buffers } else { Asked::Other });
}

/// Notes that the device is asked for an operation.
pub fn asked_for(op: Tensor<'_>, places: Option<&Places>) {
    let is_product = ASKED.get() == Asked::Buffers
        && op.op() == Op::MUL_MAT
        && is_managed(op.src(0).and_then(|weight| weight.storage().buffer_type()), places);
    ASKED.set(if is_product { Asked::Product } else { Asked::Other });
}

/// Notes that a graph is computed.
pub fn computing() {
    ASKED.set(Asked::Other);
}

/// Whether streamed weights are offered now. The next question is another one.
pub fn take() -> bool {
    ASKED.take() == Asked::Product && OFFERS.load(Ordering::Relaxed)
}

fn is_managed(ty: Option<BufferTypeHandle>, places: Option<&Places>) -> bool {
    places.is_some_and(|places| ty == Some(places.managed))
}
