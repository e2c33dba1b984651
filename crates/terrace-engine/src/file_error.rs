//! Files beside the model.

use std::fmt;
use std::path::PathBuf;

/// A file beside the model that cannot be used or written. Displays as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{role} {}: {reason}", path.display())]
pub struct FileError {
    /// Purpose of the file.
    pub role: FileRole,
    pub path: PathBuf,
    /// The fault, or the system's reason.
    pub reason: String,
}

impl FileError {
    /// Makes the error for a file that cannot be written.
    pub(crate) fn unwritten(role: FileRole, path: PathBuf, source: &std::io::Error) -> Self {
        Self { role, path, reason: source.to_string() }
    }
}

/// The purpose of a file beside the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// Simulated memory readings.
    Readings,
    /// A plan to follow.
    Plan,
    Adapter,
    Projector,
    /// Layers to skip.
    LayerSkip,
    /// Permitted loss, and its cost.
    Lossy,
    /// Uses of experts to start from.
    Learn,
    /// The output of a learn file.
    LearnOutput,
    /// The output of a routing trace.
    Trace,
    /// The output of a timeline.
    Timeline,
    /// Kept conversations.
    PromptCache,
}

impl fmt::Display for FileRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Readings => "memory readings",
            Self::Plan => "plan",
            Self::Adapter => "adapter",
            Self::Projector => "projector",
            Self::LayerSkip => "layer skip file",
            Self::Lossy => "lossy file",
            Self::Learn => "learn file",
            Self::LearnOutput => "cannot write the learn file",
            Self::Trace => "cannot write the routing trace",
            Self::Timeline => "cannot write the timeline",
            Self::PromptCache => "kept conversations",
        })
    }
}
