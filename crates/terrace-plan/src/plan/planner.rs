//! The planner that found a plan.

use serde::{Deserialize, Serialize};

/// The planner that found a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Planner {
    /// The greedy planner, from a fixed family of outlines.
    Greedy,
    /// The rounded linear program, or steps from it or from the best greedy outline.
    Lp,
    /// The linear program in whole numbers: no plan is better.
    Exact,
    /// Named sets of weights.
    Sets,
    /// The plan was read from a file.
    File,
}
