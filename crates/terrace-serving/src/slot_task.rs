//! Operations of callers on an idle slot: copy what it holds, put a conversation into it,
//! empty it.

use std::sync::Arc;
use terrace_engine::prompt_cache::Kept;
use terrace_ggml::llama::StateError;

/// An operation on a slot.
#[derive(Debug)]
pub enum SlotWork {
    /// Copy what it holds.
    Copy,
    /// Replace what it holds by a conversation of the same model and state.
    Put(Box<Kept>),
    /// Empty it.
    Erase,
}

/// The result of a slot operation.
#[derive(Debug)]
pub enum SlotOutcome {
    /// A copy of what it holds.
    Copied(Arc<Kept>),
    /// Number of tokens that it now holds.
    Put(usize),
    /// Number of tokens that it held.
    Erased(usize),
}

/// Why nothing was done with a slot.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// There is no such slot.
    #[error("there is no slot {slot}: the last one of {slots} is {}", slots - 1)]
    NoSlot {
        /// The requested one.
        slot: usize,
        /// Number of slots.
        slots: usize,
    },
    /// It holds nothing.
    #[error("slot {0} holds no tokens")]
    Empty(usize),
    /// It could not be copied or replaced.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Called with the outcome.
pub type SlotDone = Box<dyn FnOnce(Result<SlotOutcome, SlotError>) + Send>;

/// Work for a slot that is or becomes idle.
pub struct SlotTask {
    pub slot: usize,
    pub work: SlotWork,
    pub done: SlotDone,
}
