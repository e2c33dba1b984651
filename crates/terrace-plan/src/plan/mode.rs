//! Kinds of runs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Mode of a run's weights, or of a layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing is streamed; all weights are in memory.
    FullResident,
    /// Nothing is streamed; the page cache serves all weights.
    Mapped,
    /// Routed experts are streamed, the rest is resident.
    ExpertStreaming,
    /// Dense feed-forward matrices are streamed, the rest is resident.
    DenseFfnStreaming,
    /// Other sets are streamed: experts and dense matrices, or all matrices.
    MixedStreaming,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FullResident => "full-resident",
            Self::Mapped => "mapped",
            Self::ExpertStreaming => "expert-streaming",
            Self::DenseFfnStreaming => "dense-ffn-streaming",
            Self::MixedStreaming => "mixed-streaming",
        })
    }
}
