//! A round: one token for each generating slot, then one graph of one prompt, or of several that share it.

use super::Worker;
use crate::job::Event;
use crate::pace::Took;
use crate::slot::Slot;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_backend::PassKind;
use terrace_engine::steps::{Evaluated, Stop};

impl Worker {
    /// Evaluates the next part of one prompt, or of several that share a pass: as much as llama.cpp computes
    /// as one graph, or, while there are slots that generate, as much as they may wait for. Slots take turns.
    pub(super) fn prefill(&mut self) {
        if !self.slots.iter().any(Slot::wants_prefill) {
            return;
        }
        self.gather();
        let n = self.slots.len();
        // In lockstep, the first one is evaluated to its end.
        let first = if self.lockstep.is_some() { 0 } else { self.turn + 1 };
        let next = (0..n).map(|step| (first + step) % n).find(|&i| self.slots[i].wants_prefill());
        let Some(index) = next else { return };
        let most = self.pace.size(!self.slots.iter().any(Slot::wants_decode)).min(self.part());
        let group = self.prompts_with(index);
        self.turn = group.end - 1;
        group.clone().for_each(|index| self.checkpoint(index, most));
        let held = |this: &Self| group.clone().map(|index| this.slots[index].session.held).sum::<usize>();
        let (before, stalled) = (held(self), self.stalled());
        let begin = Instant::now();
        if group.len() == 1 || !self.evaluate_prompts(group.clone()) {
            self.turn = index;
            self.evaluate(index, most);
        }
        let time = begin.elapsed();
        self.totals.prefill_seconds += time.as_secs_f64();
        let evaluated = held(self).saturating_sub(before);
        self.pace.note(evaluated, Took { time, stall: self.stalled().saturating_sub(stalled) });
    }

    /// Total time that computing has waited for disk.
    fn stalled(&self) -> Duration {
        self.engine.store_stats().map_or(Duration::ZERO, |stats| stats.stall)
    }

    /// Evaluates the token that each generating slot chose last, and chooses the next one.
    pub(super) fn decode(&mut self) {
        let begin = Instant::now();
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend((0..self.slots.len()).filter(|&i| self.slots[i].wants_decode()));
        // Changing adapters has graphs made again, so those with the same ones follow each other.
        ready.sort_by_key(|&slot| (0..slot).find(|&first| self.is_alike(first, slot)).unwrap_or(slot));
        let mut rest = &ready[..];
        while let Some(&first) = rest.first() {
            let alike = rest.iter().take_while(|&&slot| self.is_alike(first, slot)).count();
            let Self { together, slots, .. } = &mut *self;
            let same = together.take(&rest[..alike], |slot| slots[slot].session.held);
            let (group, others) = rest.split_at(same);
            rest = others;
            match group {
                &[index] => self.evaluate(index, 1),
                group => self.evaluate_together(group),
            }
        }
        if !ready.is_empty() {
            self.totals.decode_seconds += begin.elapsed().as_secs_f64();
        }
        self.ready = ready;
    }

    /// Returns whether two slots compute with the same adapters.
    pub(super) fn is_alike(&self, one: usize, other: usize) -> bool {
        self.slots[one].session.scales == self.slots[other].session.scales
    }

    /// Evaluates up to `most` of the next tokens of a slot, and chooses one after them if they were the
    /// last.
    fn evaluate(&mut self, index: usize, most: usize) {
        self.count_pass();
        let slot = &mut self.slots[index];
        let drafts = slot.work.as_ref().map_or(0, |work| work.generation.left(&slot.session));
        let before = slot.session.wants_scores().then_some(slot.session.held);
        // A pass of a prompt may take minutes, and nobody else is computed for. States cannot be cut back: what a slot
        // holds of them would be lost with the pass.
        let caller = slot.work.as_ref().map(|work| Arc::clone(&work.standing));
        let ends = caller.as_ref().filter(|_| !self.engine.model().has_states());
        self.engine.end_passes_with(ends.map(|standing| Arc::clone(&standing.left)));
        let evaluated = self.engine.evaluate(&mut slot.session, &mut self.batch, most, drafts);
        self.engine.end_passes_with(None);
        match evaluated {
            Ok(Evaluated::All | Evaluated::Part)
                if before.is_some_and(|before| !self.score(index, before)) => {}
            Ok(Evaluated::All) => {
                let mut next = Some(0);
                while let Some(row) = next {
                    next = self.choose(index, row);
                }
            }
            Ok(Evaluated::Part) if self.slots[index].is_new() => {
                let evaluated = self.slots[index].session.held;
                self.tell(index, Event::Progress { evaluated });
            }
            Ok(Evaluated::Part) => {}
            Ok(Evaluated::Again) => self.slots[index].stalled = true,
            // The job ends before the next pass.
            Ok(Evaluated::Interrupted) if caller.is_some_and(|standing| standing.has_left()) => {}
            Ok(Evaluated::Interrupted) => self.finish(index, Stop::CANCELLED),
            Err(error) => self.fail(index, error),
        }
    }

    /// Takes the probabilities of the prompt's tokens that were held from `before` on. Returns false if
    /// that ends the job.
    fn score(&mut self, index: usize, before: usize) -> bool {
        let slot = &mut self.slots[index];
        let work = slot.work.as_mut().expect("a job was evaluated");
        match work.generation.score(&mut self.engine, &mut slot.session, before) {
            Ok(None) => true,
            Ok(Some(probs)) => self.tell(index, Event::Scored(probs)),
            Err(error) => {
                self.fail(index, error);
                false
            }
        }
    }

    /// Counts a graph that is computed next.
    pub(super) fn count_pass(&mut self) {
        self.totals.passes += 1;
        self.totals.pass_slots += self.slots.iter().filter(|slot| !slot.is_idle()).count() as u64;
        let held = self.slots.iter().map(|slot| slot.session.len()).max().unwrap_or_default();
        self.totals.most_tokens = self.totals.most_tokens.max(held as u64);
    }

    /// Evaluates one token for each of several slots with the same adapters in one batch. Evaluates them
    /// one by one if that fails, which shows the slot that causes it, or if they may not have the bits that
    /// they have alone.
    fn evaluate_together(&mut self, group: &[usize]) {
        self.engine.use_scales(&self.slots[group[0]].session.scales);
        self.batch.clear();
        for &index in group {
            self.slots[index].session.add_to(&mut self.batch, 1);
        }
        self.count_pass();
        let files = self.engine.check_files();
        self.engine.compute_alone(if self.together.is_exact() { group.len() } else { 0 });
        let decoded = files.and_then(|()| Ok(self.engine.decode(&mut self.batch, PassKind::Decode)?));
        self.engine.compute_alone(0);
        let unclear = self.engine.weights().and_then(|weights| weights.take_unclear());
        if let Some(unclear) = unclear {
            self.together.avoid(unclear, group.len());
        }
        if decoded.is_ok() && unclear.is_none() {
            for &index in group {
                self.slots[index].session.evaluated(1, self.engine.epoch());
            }
            for (row, &index) in group.iter().enumerate() {
                // Without drafts, there is no next row.
                let _ = self.choose(index, row);
            }
            return;
        }
        for &index in group {
            let slot = &mut self.slots[index];
            let held = slot.session.held;
            if slot.session.cut(self.engine.context(), held) != held {
                // Its keys and values are gone, so everything is evaluated again.
                slot.session.held = held;
                self.totals.recomputed_tokens += slot.forget() as u64;
            }
        }
        for &index in group {
            if self.slots[index].wants_decode() {
                self.evaluate(index, 1);
            }
        }
    }

    /// Chooses a token from a row of logits, and ends the job where that ends it. Returns the row to
    /// choose the next one from, if the chosen one is a draft.
    pub(super) fn choose(&mut self, index: usize, row: usize) -> Option<usize> {
        let slot = &mut self.slots[index];
        let work = slot.work.as_mut().expect("a job was evaluated");
        if work.generation.is_new() {
            let (prompt, reused) = (work.generation.prompt(), work.generation.reused());
            self.totals.prompt_tokens += (prompt - reused) as u64;
            self.totals.reused_tokens += reused as u64;
        }
        let before = work.generation.generated(&slot.session);
        let reported = work.generation.reported(0).len();
        let mut text = Vec::new();
        let chosen = work.generation.choose(&mut self.engine, &mut slot.session, row, &mut text);
        let next = if matches!(chosen, Ok(None)) { slot.session.confirm() } else { None };
        if next.is_none() {
            self.engine.settle_drafts(&mut slot.session, !matches!(chosen, Ok(None)));
        }
        let generated = work.generation.generated(&slot.session) - before;
        let token = slot.session.tokens.last().copied().filter(|_| work.tokens && generated > 0);
        self.totals.generated_tokens += generated as u64;
        let probs = work.generation.reported(reported).to_vec();
        if token.is_some_and(|token| !self.tell(index, Event::Token(token))) {
            return None;
        }
        if !probs.is_empty() && !self.tell(index, Event::Probs(probs)) {
            return None;
        }
        if !text.is_empty() && !self.tell(index, Event::Text(text)) {
            return None;
        }
        match chosen {
            Ok(None) => return next,
            Ok(Some(stop)) => self.end(index, stop),
            Err(error) => self.fail(index, error),
        }
        None
    }
}
