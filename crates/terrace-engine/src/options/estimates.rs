//! Assumptions of estimates.

use terrace_plan::{Expected, HitCurve};

/// Assumptions of estimates.
#[derive(Clone, Debug, Default)]
pub struct EstimateOptions {
    /// The prompt and the output that plans are made for.
    pub expected: Expected,
    /// Expected reuse of experts; `None` means the usual curve for their numbers.
    pub hits: Option<HitCurve>,
    /// Share of drafts of tokens that is expected to be right; `None` means the usual share.
    pub drafts_right: Option<f64>,
}
