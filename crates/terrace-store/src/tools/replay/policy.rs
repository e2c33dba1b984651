//! The policies of replays: those of runs, and the oracle.

use crate::policy::{ParsePolicyError, PolicyKind};
use std::fmt;
use std::str::FromStr;

/// A policy to replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayPolicy {
    /// A policy of runs.
    Online(PolicyKind),
    /// The oracle, which knows the whole trace, and evicts the block whose next use is farthest in
    /// the future.
    Belady,
}

/// Text that is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, or belady")]
pub struct ParseReplayPolicyError(#[from] ParsePolicyError);

impl fmt::Display for ReplayPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Online(kind) => kind.fmt(f),
            Self::Belady => f.pad("belady"),
        }
    }
}

impl FromStr for ReplayPolicy {
    type Err = ParseReplayPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "belady" => Ok(Self::Belady),
            _ => Ok(Self::Online(text.parse()?)),
        }
    }
}
