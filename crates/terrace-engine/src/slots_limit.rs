//! Limits the memory of a model's slots from any thread, while the model is in use or idle.

use crate::pressure::heed_if_idle;
use serde::{Deserialize, Serialize};
use std::sync::Weak;
use std::time::{Duration, Instant};
use terrace_backend::Weights;
use terrace_model::ByteSize;
use terrace_store::BudgetHandle;

/// Interval at which slots that have yet to shrink are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A handle to the slots of a loaded model.
#[derive(Clone, Debug)]
pub struct SlotsLimit {
    budget: BudgetHandle,
    weights: Weak<Weights>,
}

/// The memory of a model's slots, as `/v1/memory` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsMemory {
    /// The least that graphs need.
    pub least: ByteSize,
    /// Bytes with which the model was loaded.
    pub most: ByteSize,
    /// Limit of the slots now.
    pub limit: ByteSize,
    /// Bytes that they hold: RAM that was never used is not taken.
    pub held: ByteSize,
}

impl SlotsLimit {
    pub(crate) const fn new(budget: BudgetHandle, weights: Weak<Weights>) -> Self {
        Self { budget, weights }
    }

    /// The slots' memory now.
    pub fn memory(&self) -> SlotsMemory {
        let budget = &self.budget;
        let (least, most) = (budget.least(), budget.most());
        SlotsMemory { least, most, limit: budget.limited(), held: budget.held() }
    }

    /// Limits the slots, between the least and the most. Where the model is idle, memory beyond the limit
    /// is given back to the system at once; otherwise the running graph does that as soon as nothing beyond
    /// is in use, and this waits for it, up to `patience`.
    pub fn set(&self, bytes: ByteSize, patience: Duration) -> SlotsMemory {
        self.budget.limit(bytes);
        let begin = Instant::now();
        loop {
            // The model may be gone by now, with all of its slots.
            let Some(weights) = self.weights.upgrade() else { break };
            heed_if_idle(&weights);
            if self.budget.held() <= self.budget.limited() || begin.elapsed() >= patience {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.memory()
    }
}
