//! Chooses the slot for a job, and how many of that slot's tokens it need not evaluate.

use super::queue::Request;
use super::slot::Slot;
use super::worker::Worker;

/// A slot is chosen for its contents if they save at least one in this many tokens of the prompt;
/// otherwise the least recently used slot is taken, since nearly all prompts begin with the same
/// few tokens. llama.cpp's server uses the same share.
const WORTH: usize = 10;

impl Worker {
    /// The slot for a job, and how many tokens of its prompt that slot can reuse.
    pub(super) fn slot_for(&self, request: &Request) -> (usize, usize) {
        let prompt: &[i32] = &request.job.prompt;
        let idle = || self.slots.iter().enumerate().filter(|(_, slot)| slot.is_idle());
        let reusable = |slot| if request.job.reuse { self.reusable(slot, prompt) } else { 0 };
        let best = idle().map(|(i, slot)| (i, reusable(slot))).max_by_key(|&(_, reused)| reused);
        if let Some((index, reused)) = best
            && reused > 0
            && reused * WORTH >= prompt.len()
        {
            return (index, reused);
        }
        let (index, slot) =
            idle().min_by_key(|(_, slot)| slot.used).expect("a job is taken for an idle slot");
        (index, reusable(slot))
    }

    /// Number of prompt tokens that need not be evaluated in this slot. The last one always is,
    /// because its logits are wanted.
    fn reusable(&self, slot: &Slot, prompt: &[i32]) -> usize {
        let common = slot.session.common(prompt);
        if common == slot.session.held && common < prompt.len() {
            return common;
        }
        let common = common.min(prompt.len() - 1);
        let model = self.engine.model();
        // Sliding windows: the next token looks back on positions that may have been overwritten
        // since.
        let window =
            (model.sliding_window() > 0).then(|| common.saturating_sub(model.sliding_window() as usize));
        let first = self.engine.first_position(slot.session.sequence);
        let gone = window.is_some_and(|needed| first.is_none_or(|first| first as usize > needed));
        if model.has_states() || gone { 0 } else { common }
    }
}
