//! Assumptions of estimates.

use terrace_plan::HitCurve;

/// Assumptions of estimates.
#[derive(Clone, Debug)]
pub struct EstimateOptions {
    /// Tokens of the prompt that estimates are for.
    pub prompt: u32,
    /// Expected reuse of experts; `None` means the usual curve for their numbers.
    pub hits: Option<HitCurve>,
}

impl Default for EstimateOptions {
    fn default() -> Self {
        Self { prompt: 512, hits: None }
    }
}
