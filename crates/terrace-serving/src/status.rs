//! The status of a worker: its current activity and totals.

use terrace_engine::prompt_cache::PromptCacheStatus;
use terrace_engine::{BudgetSpent, DraftCounts, StopReason};
use terrace_lanes::HotTotals;
use terrace_store::StoreStats;

/// The current activity of a worker, and its totals since it started.
#[derive(Clone, Debug, Default)]
pub struct ServingStatus {
    /// All slots, by number.
    pub slots: Vec<SlotStatus>,
    /// Number of jobs that wait for a slot.
    pub waiting: usize,
    /// Number of jobs that embed texts, waiting or being computed.
    pub embedding: usize,
    /// Totals since the start.
    pub totals: Totals,
    /// Number of times that tensors were replaced.
    pub epoch: u64,
    /// Store counters; `None` in stock runs.
    pub store: Option<StoreStats>,
    /// The quality budget; `None` if there is none.
    pub quality: Option<BudgetSpent>,
    /// Totals of expert copies on devices; `None` if there are none.
    pub hot: Option<HotTotals>,
    /// Kept conversations.
    pub prompt_cache: PromptCacheStatus,
}

impl ServingStatus {
    /// Returns whether no job is in a slot, none waits for one, and no text is embedded.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0
            && self.embedding == 0
            && self.slots.iter().all(|slot| slot.state == SlotState::Idle)
    }
}

/// The activity of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotState {
    /// It has no job, but may hold the tokens of an earlier one.
    #[default]
    Idle,
    /// It evaluates a prompt, or evaluates its tokens again after tensors were replaced.
    Prefill,
    /// It generates.
    Decode,
}

/// The status of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStatus {
    /// Its activity.
    pub state: SlotState,
    /// Number of tokens whose keys and values it holds.
    pub held: usize,
    /// The oldest epoch of these keys and values; `None` if it holds none.
    pub epoch: Option<u64>,
    /// Tokens of the current job's prompt.
    pub prompt: usize,
    /// Tokens generated for the current job.
    pub generated: usize,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Prompt tokens that were evaluated.
    pub prompt_tokens: u64,
    /// Prompt tokens that were reused.
    pub reused_tokens: u64,
    /// Tokens that were evaluated again because tensors were replaced during a job.
    pub recomputed_tokens: u64,
    pub generated_tokens: u64,
    /// Jobs, by how they ended.
    pub ended: FinishCounts,
    /// Jobs that embedded texts.
    pub embedded_jobs: u64,
    /// Tokens that were embedded.
    pub embedded_tokens: u64,
    /// Seconds spent embedding.
    pub embedding_seconds: f64,
    /// Seconds spent evaluating prompts.
    pub prefill_seconds: f64,
    /// Seconds spent generating.
    pub decode_seconds: f64,
    /// Graphs computed.
    pub passes: u64,
    /// Slots with a job, added up over these graphs.
    pub pass_slots: u64,
    /// Prompts whose ends were evaluated in one pass with others.
    pub shared_prompts: u64,
    /// The most tokens that a slot has held.
    pub most_tokens: u64,
    /// Drafts; zero without.
    pub drafts: DraftCounts,
}

/// Jobs by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinishCounts {
    /// By an end-of-text token.
    pub end_of_text: u64,
    /// At the requested number of tokens.
    pub length: u64,
    /// By a stop string.
    pub stop_string: u64,
    /// Because the context was full.
    pub context_full: u64,
    /// Because the caller left, or the worker was stopped or interrupted.
    pub cancelled: u64,
    /// By an error.
    pub failed: u64,
}

impl FinishCounts {
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
