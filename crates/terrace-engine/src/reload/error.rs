//! Why tensors were not replaced.

use std::fmt;
use std::path::PathBuf;
use terrace_backend::BackendError;
use terrace_ggml::gguf::GgufError;
use terrace_model::ByteSize;
use terrace_store::StoreError;

/// A tensor that was not replaced, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Refusal {
    pub tensor: String,
    /// The file that it should have come from.
    #[serde(serialize_with = "terrace_model::path_text::serialize_option")]
    pub path: Option<PathBuf>,
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tensor, self.reason)?;
        match &self.path {
            Some(path) => write!(f, " ({})", path.display()),
            None => Ok(()),
        }
    }
}

/// Why nothing was replaced, or ([`ReloadError::LeftBehind`]) not everything. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Some tensors cannot be replaced, so none were.
    #[error("nothing was reloaded: {}", list(.0))]
    Refused(Vec<Refusal>),
    /// A file is not, or no longer, a GGUF file with the tensors.
    #[error("nothing was reloaded: {source}")]
    File {
        path: PathBuf,
        /// The fault.
        source: Box<GgufError>,
        /// True if it changed a moment ago and may still be in the middle of being written.
        fresh: bool,
    },
    /// A file cannot be accessed.
    #[error("nothing was reloaded: {}: {source}", path.display())]
    Gone {
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file kept changing while it was read.
    #[error("nothing was reloaded: {} is still being written", path.display())]
    Unstable { path: PathBuf },
    /// Bytes could not be read.
    #[error("nothing was reloaded: {0}")]
    Read(#[from] StoreError),
    /// The backend refused.
    #[error("nothing was reloaded: {0}")]
    Backend(#[from] BackendError),
    /// There is less memory than the new bytes need beside the old ones.
    #[error(
        "nothing was reloaded: the new tensors need {needed} beside the old ones, but only {available} is available"
    )]
    NoRoom {
        needed: ByteSize,
        /// RAM that can be taken.
        available: ByteSize,
    },
    /// The RAM budget has too little left for the tensors.
    #[error(
        "nothing was reloaded: replaced tensors need {needed}, but the RAM budget of {budget} has only {left} for them"
    )]
    OverBudget {
        /// Their bytes, including tensors that were replaced before.
        needed: ByteSize,
        /// Bytes that resident weights and the minimum of slots leave.
        left: ByteSize,
        budget: ByteSize,
    },
    /// Tensors were replaced, but a weight that belongs to one of them could not be sliced again for
    /// the devices, for want of memory. Nothing is computed until a reload finds that memory.
    #[error(
        "{} replaced, but {tensor} could not be sliced again to match: {source}",
        if *swapped == 1 { "1 tensor was".into() } else { format!("{swapped} tensors were") }
    )]
    LeftBehind {
        /// Number of tensors that were replaced.
        swapped: usize,
        /// The weight.
        tensor: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Memory for the new bytes could not be allocated.
    #[error("nothing was reloaded: cannot allocate {len} bytes for {tensor}: {source}")]
    Memory {
        tensor: String,
        /// Its bytes.
        len: u64,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// `Ok(all)` if nothing was refused.
pub(super) fn all_or_nothing<T>(all: T, refusals: Vec<Refusal>) -> Result<T, ReloadError> {
    if refusals.is_empty() { Ok(all) } else { Err(ReloadError::Refused(refusals)) }
}

impl ReloadError {
    /// Returns true if trying again a moment later may succeed, because a file is in the middle of being
    /// written.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::File { fresh, .. } => *fresh,
            Self::Unstable { .. } => true,
            Self::Read(StoreError::UnexpectedEof { .. }) => true,
            _ => false,
        }
    }

    /// Returns true if one file is at fault, and tensors of others could be replaced.
    pub(super) const fn is_of_one_file(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Gone { .. } | Self::Unstable { .. })
    }

    /// The cause alone, for a tensor's refusal.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::File { source, .. } => source.to_string(),
            Self::Gone { source, .. } => format!("cannot find its file: {source}"),
            Self::Unstable { .. } => "its file is still being written".into(),
            other => other.to_string(),
        }
    }

    /// Advice for the user, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unstable { .. } | Self::File { .. } => {
                Some("write to another file, and rename it into place when it is complete".into())
            }
            Self::LeftBehind { .. } => Some("free memory and reload again".into()),
            Self::OverBudget { .. } => Some(
                "raise the RAM budget, or stream these weights: streamed ones need no extra memory".into(),
            ),
            _ => None,
        }
    }
}

/// The first refusal, and the number of others.
fn list(refusals: &[Refusal]) -> String {
    match refusals {
        [] => "no reason given".into(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first}; and {} more", rest.len()),
    }
}
