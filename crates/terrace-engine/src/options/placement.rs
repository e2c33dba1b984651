//! Placement of weights.

use std::path::PathBuf;
use terrace_host::pressure::Adapt;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage, TensorRule};

/// Placement of weights in RAM.
#[derive(Clone, Debug)]
pub struct PlacementOptions {
    /// Which weights are streamed.
    pub stream: Manage,
    /// Whether weights that fit may stay in the page cache; otherwise they are read into memory.
    pub mapping: bool,
    /// RAM for weights: resident ones and slots together.
    pub ram_budget: Budget,
    /// RAM that can be taken; `None` means what the system says.
    pub available: Option<ByteSize>,
    /// Whether the budget adapts to available memory.
    pub adapt: Adapt,
    /// A plan file (JSON), which is followed instead of [`PlacementOptions::stream`] and
    /// [`PlacementOptions::ram_budget`].
    pub plan: Option<PathBuf>,
    /// Rules for single tensors, which override the plan.
    pub rules: Vec<TensorRule>,
}

impl Default for PlacementOptions {
    fn default() -> Self {
        Self {
            stream: Manage::Auto,
            mapping: true,
            ram_budget: Budget::Auto,
            available: None,
            adapt: Adapt::default(),
            plan: None,
            rules: Vec::new(),
        }
    }
}
