//! The report of a reload.

use super::error::Refusal;
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;
use terrace_ggml::llama::Seat;
use terrace_model::ByteSize;

/// A tensor that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swapped {
    /// Its name.
    pub tensor: String,
    /// Its type before.
    pub from: String,
    /// Its type now.
    pub to: String,
    /// The file that it comes from now.
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    pub path: PathBuf,
    /// Its offset in that file, in bytes.
    pub offset: u64,
    /// Its bytes there.
    pub size: ByteSize,
    /// The SHA-256 of these, in runs that verify what they read, unless it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Bytes that were read for it: 0 if it returned to what was loaded, and for streamed tensors,
    /// which are read when they are needed.
    pub bytes: ByteSize,
    /// Place of its bytes: `original`, `detached`, `fallback-cpu`, or `streamed`.
    pub state: &'static str,
}

impl Swapped {
    /// The tensor's change, and the source of its bytes.
    pub fn change(&self) -> String {
        let Self { from, to, bytes, state, offset, size, path, sha256, .. } = self;
        let sha256 = sha256.as_ref().map(|sha256| format!(", SHA-256 {sha256}")).unwrap_or_default();
        format!("{from} -> {to}, {state}, {bytes} read; {size} at {offset} in {}{sha256}", path.display())
    }
}

/// The result of a reload; empty if nothing had changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReloadReport {
    /// The model's epoch afterwards.
    pub epoch: u64,
    /// The tensors that were replaced.
    pub swapped: Vec<Swapped>,
    /// Tensors that keep their bytes, because they cannot be replaced
    /// ([`Take::Acceptable`](super::Take::Acceptable)).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
    /// The last reload before this one that replaced tensors; `None` if there was none, or if this one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierReload>,
    /// Tensors in changed files whose bytes are the same as before. Serialized as their number.
    #[serde(serialize_with = "number")]
    pub unchanged: Vec<String>,
    /// Number of weights that were not replaced, but sliced again because one that belongs to them
    /// was.
    pub resplit: usize,
    /// True if the context was cleared.
    pub cleared: bool,
    /// Duration in seconds.
    pub seconds: f64,
}

/// An earlier reload, by which a later one finds nothing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlierReload {
    /// The model's epoch after it.
    pub epoch: u64,
    /// Number of tensors that it replaced.
    pub tensors: usize,
    /// Seconds since it ended.
    pub seconds_ago: f64,
}

impl ReloadReport {
    /// Returns true if no tensor was replaced.
    pub fn is_empty(&self) -> bool {
        self.swapped.is_empty()
    }

    /// Bytes that were read.
    pub fn bytes(&self) -> ByteSize {
        self.swapped.iter().map(|tensor| tensor.bytes).sum()
    }
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for swapped in &self.swapped {
            writeln!(f, "reloaded {}: {}", swapped.tensor, swapped.change())?;
        }
        for refusal in &self.refused {
            writeln!(f, "not reloaded: {refusal}")?;
        }
        if self.resplit > 0 {
            writeln!(f, "{} weights were sliced again for the devices", self.resplit)?;
        }
        let (epoch, ms) = (self.epoch, self.seconds * 1e3);
        write!(f, "epoch {epoch}: {} tensors in {ms:.1} ms", self.swapped.len())
    }
}

fn number<S: Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(names.len() as u64)
}

/// The name of a seat, for people and JSON.
pub(super) const fn state(seat: Seat) -> &'static str {
    match seat {
        Seat::OnOriginal => "original",
        Seat::Detached => "detached",
        Seat::FallbackCpu => "fallback-cpu",
    }
}
