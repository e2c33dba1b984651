//! Jobs that all others come before.

use super::Worker;
use crate::job::Event;

impl Worker {
    /// Has such jobs rest while others are computed, which would otherwise share their time with them.
    pub(super) fn rest(&mut self) {
        let others = self.slots.iter().any(|slot| slot.is_first() && !slot.stalled);
        for slot in &mut self.slots {
            slot.resting = others && slot.work.as_ref().is_some_and(|work| work.background);
        }
    }

    /// Returns whether such a job may begin: of several slots one stays free for others.
    pub(super) fn has_room(&self) -> bool {
        let begun = self.slots.iter().filter(|slot| !slot.is_idle() && !slot.is_first()).count();
        begun < (self.slots.len() - 1).max(1)
    }

    /// Takes slots from such jobs if others wait for one: from those that have begun last.
    pub(super) fn displace(&mut self) {
        let free = self.slots.iter().filter(|slot| slot.is_idle()).count();
        let waiting = self.queue.waiting(|job| !job.background && job.slot.is_none());
        for _ in free..waiting {
            let behind =
                self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_idle() && !slot.is_first());
            let Some((last, _)) = behind.max_by_key(|(_, slot)| slot.used) else { return };
            self.totals.ended.cancelled += 1;
            let mut sink = self.take(last);
            let _ = sink(Event::Displaced);
        }
    }
}
