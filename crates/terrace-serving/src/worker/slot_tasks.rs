//! Operations of callers on idle slots.

use super::Worker;
use crate::slot::Slot;
use crate::slot_task::{SlotError, SlotOutcome, SlotTask, SlotWork};
use std::sync::Arc;

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

    /// Returns whether work for a slot can be done now: nothing uses it, or it does not exist.
    pub(super) fn may_change(&self, slot: usize) -> bool {
        self.slots.get(slot).is_none_or(Slot::is_idle)
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
