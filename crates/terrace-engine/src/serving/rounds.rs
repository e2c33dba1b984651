//! A round: a token for each slot that generates, and a graph's tokens of one prompt.

use super::job::Event;
use super::worker::Worker;
use crate::generate::StopReason;
use std::time::Instant;
use terrace_ggml::llama::ContextError;

impl Worker {
    /// Evaluates the next part of a prompt, of one slot after the other, in the pieces that llama.cpp computes as a graph.
    pub(super) fn prefill(&mut self) {
        let n = self.slots.len();
        let next = (1..=n).map(|step| (self.turn + step) % n).find(|&i| self.slots[i].wants_prefill());
        let Some(index) = next else { return };
        self.turn = index;
        let slot = &self.slots[index];
        let tokens = (slot.batched - slot.held).min(self.engine.plan().ubatch as usize);
        let begin = Instant::now();
        self.evaluate(index, tokens);
        self.totals.prefill_seconds += begin.elapsed().as_secs_f64();
    }

    /// Evaluates the token that each generating slot chose last, and chooses the next.
    pub(super) fn decode(&mut self) {
        let begin = Instant::now();
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend((0..self.slots.len()).filter(|&i| self.slots[i].wants_decode()));
        for group in ready.chunks(if self.together { self.engine.batch() } else { 1 }) {
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

    /// Evaluates the next tokens of a slot, and chooses one behind them if they were the last.
    fn evaluate(&mut self, index: usize, tokens: usize) {
        if let Err(error) = self.engine.check_files() {
            return self.fail(index, error);
        }
        let slot = &mut self.slots[index];
        self.batch.clear();
        slot.add_to(&mut self.batch, tokens);
        match self.engine.context().decode_batch(&mut self.batch) {
            Ok(()) => {
                slot.evaluated(tokens, self.engine.epoch());
                if slot.held == slot.tokens.len() {
                    self.choose(index, 0);
                } else if slot.is_new() {
                    let evaluated = slot.held;
                    self.tell(index, Event::Progress { evaluated });
                }
            }
            Err(error) => {
                let held = slot.held;
                let whole = self.cut(index, held) == held;
                match error {
                    // Again behind the reload that comes first in the next round.
                    error if whole && self.engine.is_being_written(&error) => {}
                    ContextError::Interrupted => self.finish(index, StopReason::Cancelled, None),
                    error => self.fail(index, error.into()),
                }
            }
        }
    }

    /// Evaluates a token of each of several slots in one batch. If that fails, one by one: whose fault it is shows then.
    fn evaluate_together(&mut self, group: &[usize]) {
        self.batch.clear();
        for &index in group {
            self.slots[index].add_to(&mut self.batch, 1);
        }
        let files = self.engine.check_files();
        let decoded = files.and_then(|()| Ok(self.engine.context().decode_batch(&mut self.batch)?));
        if decoded.is_ok() {
            for &index in group {
                self.slots[index].evaluated(1, self.engine.epoch());
            }
            for (row, &index) in group.iter().enumerate() {
                self.choose(index, row);
            }
            return;
        }
        for &index in group {
            let held = self.slots[index].held;
            if self.cut(index, held) != held {
                // Nothing is left of it: it goes the long way again.
                self.slots[index].held = held;
                self.totals.recomputed_tokens += self.slots[index].forget() as u64;
            }
        }
        for &index in group {
            if self.slots[index].wants_decode() {
                self.evaluate(index, 1);
            }
        }
    }

    /// Chooses a token from a row of logits, and ends the job where that ends it.
    fn choose(&mut self, index: usize, row: usize) {
        let slot = &mut self.slots[index];
        let work = slot.work.as_mut().expect("a job was evaluated");
        let epoch = self.engine.epoch();
        work.epochs = Some((work.epochs.map_or(slot.epoch, |(first, _)| first), epoch));
        if work.evaluated.is_none() {
            work.evaluated = Some(Instant::now());
            self.totals.prompt_tokens += (work.prompt - work.reused) as u64;
            self.totals.reused_tokens += work.reused as u64;
        }
        if work.n_max == Some(0) {
            return self.finish(index, StopReason::Length, None);
        }
        let token = work.sampler.sample_row(self.engine.context(), row);
        work.first.get_or_insert_with(Instant::now);
        if self.engine.vocab().is_end(token) {
            return self.finish(index, StopReason::EndOfText, None);
        }
        slot.tokens.push(token.0);
        self.totals.generated_tokens += 1;
        self.piece.clear();
        self.engine.vocab().piece(token, false, &mut self.piece);
        let mut text = Vec::new();
        let stopped = work.stops.push(&self.piece, &mut text);
        let generated = slot.tokens.len() - work.prompt;
        let (length, full) = (work.n_max == Some(generated), slot.held == self.engine.context_size());
        if !text.is_empty() && !self.tell(index, Event::Text(text)) {
            return;
        }
        if stopped.is_some() {
            self.finish(index, StopReason::StopString, stopped);
        } else if length {
            self.finish(index, StopReason::Length, None);
        } else if full {
            self.finish(index, StopReason::ContextFull, None);
        }
    }
}
