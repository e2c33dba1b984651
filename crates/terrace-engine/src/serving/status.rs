//! What a worker is doing, and what it has done.

use crate::answer::StopReason;
use terrace_backend::HotTotals;
use terrace_store::StoreStats;

/// What a worker is doing now, and what it has done since it started.
#[derive(Clone, Debug, Default)]
pub struct ServingStatus {
    /// Each slot, in the order of their numbers.
    pub slots: Vec<SlotStatus>,
    /// Jobs that wait for a slot.
    pub waiting: usize,
    /// What was done.
    pub totals: Totals,
    /// How often tensors were replaced.
    pub epoch: u64,
    /// What the store has done; none in stock runs.
    pub store: Option<StoreStats>,
    /// What devices did with copies of experts; none if they hold none.
    pub hot: Option<HotTotals>,
}

impl ServingStatus {
    /// Whether no job is in a slot, and none waits for one.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.slots.iter().all(|slot| slot.state == SlotState::Idle)
    }
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing: it may hold what an earlier job left.
    #[default]
    Idle,
    /// It evaluates a prompt, or evaluates again what it held before tensors were replaced.
    Prefill,
    /// It generates.
    Decode,
}

/// One slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStatus {
    /// What it does.
    pub state: SlotState,
    /// Tokens whose keys and values it holds.
    pub held: usize,
    /// The epoch that they are of, the oldest of them where they are of several; none: it holds nothing.
    pub epoch: Option<u64>,
    /// Tokens of the prompt that it works on.
    pub prompt: usize,
    /// Tokens that it has generated for the job that it works on.
    pub generated: usize,
}

/// What was done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Tokens of prompts that were evaluated.
    pub prompt_tokens: u64,
    /// Tokens of prompts that did not have to be.
    pub reused_tokens: u64,
    /// Tokens that were evaluated again because tensors were replaced under a job.
    pub recomputed_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
    /// Jobs, by how they ended.
    pub ended: Ended,
    /// Seconds of evaluating prompts.
    pub prefill_seconds: f64,
    /// Seconds of generating.
    pub decode_seconds: f64,
}

/// Jobs by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The model said so.
    pub end_of_text: u64,
    /// As many tokens as asked for.
    pub length: u64,
    /// A stop string.
    pub stop_string: u64,
    /// The context was full.
    pub context_full: u64,
    /// The caller left, or the worker was stopped or interrupted.
    pub cancelled: u64,
    /// An error.
    pub failed: u64,
}

impl Ended {
    pub(super) fn count(&mut self, stop: StopReason) {
        *match stop {
            StopReason::EndOfText => &mut self.end_of_text,
            StopReason::Length => &mut self.length,
            StopReason::StopString => &mut self.stop_string,
            StopReason::ContextFull => &mut self.context_full,
            StopReason::Cancelled => &mut self.cancelled,
        } += 1;
    }
}
