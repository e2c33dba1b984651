//! Use of the slots in RAM.

use std::path::PathBuf;
use terrace_model::SizeChoice;
use terrace_store::PolicyKind;

/// How much may be read ahead on a guess of the next layer's experts: the measured optimum,
/// nothing, or this many bytes of slots.
pub type Lookahead = SizeChoice;

/// Use of the slots in RAM.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Percentage of the slots allowed by the budget that is used; the rest is left to the page
    /// cache.
    pub slots_share: u32,
    /// The policy that chooses the blocks to evict when the slots are full.
    pub policy: PolicyKind,
    /// How much may be read ahead on a guess.
    pub lookahead: Lookahead,
    /// Directory for statistics of the experts that a model uses, so that the next run reads the
    /// hottest ones ahead; `None` means none are kept. Recording a trace switches this off.
    pub warm_start: Option<PathBuf>,
    /// Directory for the lengths of a model's prompts and answers, which the next run's plan expects
    /// unless the caller states others; `None` means none are kept. Recording a trace switches this
    /// off.
    pub usual_lengths: Option<PathBuf>,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            slots_share: 100,
            policy: PolicyKind::default(),
            lookahead: Lookahead::default(),
            warm_start: None,
            usual_lengths: None,
        }
    }
}
