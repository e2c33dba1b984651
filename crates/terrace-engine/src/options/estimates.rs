//! What estimates go by.

use terrace_plan::HitCurve;

/// What estimates go by.
#[derive(Clone, Debug)]
pub struct EstimateOptions {
    /// Tokens of the prompt that estimates are for.
    pub prompt: u32,
    /// How experts are expected to be reused; `None` means as is usual for their numbers.
    pub hits: Option<HitCurve>,
}

impl Default for EstimateOptions {
    fn default() -> Self {
        Self { prompt: 512, hits: None }
    }
}
