//! What callers do with a slot that no job uses: copy what it holds, put a conversation into it,
//! empty it.

use super::worker::Worker;
use std::sync::Arc;
use terrace_engine::prompt_cache::Kept;
use terrace_ggml::llama::StateError;

/// What to do with a slot.
#[derive(Debug)]
pub enum SlotWork {
    /// Copy what it holds.
    Copy,
    /// Replace what it holds by a conversation of the same model and state.
    Put(Box<Kept>),
    /// Empty it.
    Erase,
}

/// What was done with a slot.
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

impl Worker {
    /// Does what callers ask for with slots that are idle.
    pub(super) fn slot_tasks(&mut self) {
        while let Some(task) = self.queue.take_task(|slot| self.may_change(slot)) {
            let SlotTask { slot, work, done } = task;
            let outcome = match self.slots.len() {
                slots if slot >= slots => Err(SlotError::NoSlot { slot, slots }),
                _ => self.slot_task(slot, work),
            };
            self.show();
            done(outcome);
        }
    }

    /// Whether work for a slot can be done now: nothing uses it, or it does not exist.
    pub(super) fn may_change(&self, slot: usize) -> bool {
        self.slots.get(slot).is_none_or(super::slot::Slot::is_idle)
    }

    fn slot_task(&mut self, index: usize, work: SlotWork) -> Result<SlotOutcome, SlotError> {
        let slot = &mut self.slots[index];
        let held = slot.session.held;
        match work {
            SlotWork::Copy if held == 0 => Err(SlotError::Empty(index)),
            SlotWork::Copy => {
                let copy = self.engine.copy_session(&slot.session, slot.checkpoint.clone())?;
                Ok(SlotOutcome::Copied(Arc::new(copy)))
            }
            SlotWork::Put(kept) => {
                self.keep(index, 0);
                self.put_whole(index, &kept)?;
                Ok(SlotOutcome::Put(kept.tokens().len()))
            }
            SlotWork::Erase => {
                self.engine.context().truncate(slot.session.sequence, 0);
                slot.session.clear();
                (slot.checkpoint, slot.offered) = (None, true);
                Ok(SlotOutcome::Erased(held))
            }
        }
    }
}
