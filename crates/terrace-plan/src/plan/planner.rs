//! What a plan was found by.

use serde::{Deserialize, Serialize};

/// What found a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Planner {
    /// The fixed family of outlines.
    Greedy,
    /// The linear program, rounded, or steps from there or from the family's best.
    Lp,
    /// The linear program in whole numbers: there is no better one.
    Exact,
    /// Sets of weights by name.
    Sets,
    /// A file.
    File,
}
