//! Expected lengths in a run.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The prompt and the number of generated tokens that plans are made for: plans minimise the time
/// of both together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// Length of the prompt in tokens. Decoding attends to it.
    pub prompt: u32,
    /// Number of tokens generated after it.
    pub output: u32,
    /// The source of both numbers.
    pub source: ExpectedSource,
}

/// The source of what is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedSource {
    /// Nothing is known.
    #[default]
    Assumed,
    /// The user stated one or both.
    Stated,
    /// Those of the run's own work.
    Given,
    /// The mean of earlier runs of the model.
    Earlier {
        /// Number of these runs.
        runs: u32,
    },
}

impl Default for Expected {
    fn default() -> Self {
        Self { prompt: 512, output: 256, source: ExpectedSource::Assumed }
    }
}

impl fmt::Display for ExpectedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assumed => f.pad("assumed"),
            Self::Stated => f.pad("as stated"),
            Self::Given => f.pad("as given"),
            Self::Earlier { runs: 1 } => f.pad("from one earlier run"),
            Self::Earlier { runs } => write!(f, "from {runs} earlier runs"),
        }
    }
}
