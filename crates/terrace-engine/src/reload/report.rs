//! What a reload has done.

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use terrace_ggml::llama::Seat;
use terrace_model::ByteSize;

/// A tensor that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swapped {
    /// Its name.
    pub tensor: String,
    /// How it was stored.
    pub from: String,
    /// How it is stored.
    pub to: String,
    /// The file that it comes from now.
    pub path: PathBuf,
    /// Bytes that were read for it; none when it returns to what was loaded, and of what is streamed, which is read when it
    /// is needed.
    pub bytes: ByteSize,
    /// Where it is: `original`, `detached`, `fallback-cpu`, or `streamed`.
    pub state: &'static str,
}

/// What a reload has done. Nothing, if nothing had changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReloadReport {
    /// The model's epoch afterwards.
    pub epoch: u64,
    /// The tensors that were replaced.
    pub swapped: Vec<Swapped>,
    /// Tensors of changed files that have the bytes that they had.
    pub unchanged: usize,
    /// Weights that were not replaced and were cut anew between devices, because one that belongs to them was.
    pub resplit: usize,
    /// Whether the context was forgotten.
    pub cleared: bool,
    /// How long it took.
    pub seconds: f64,
}

impl ReloadReport {
    /// Whether no tensor was replaced.
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
        for tensor in &self.swapped {
            let Swapped { tensor, from, to, bytes, state, .. } = tensor;
            writeln!(f, "reloaded {tensor}: {from} -> {to}, {state}, {bytes} read")?;
        }
        if self.resplit > 0 {
            writeln!(f, "{} weights were sliced again for the devices", self.resplit)?;
        }
        let (epoch, ms) = (self.epoch, self.seconds * 1e3);
        write!(f, "epoch {epoch}: {} tensors in {ms:.1} ms", self.swapped.len())
    }
}

/// For people and JSON.
pub(super) const fn state(seat: Seat) -> &'static str {
    match seat {
        Seat::OnOriginal => "original",
        Seat::Detached => "detached",
        Seat::FallbackCpu => "fallback-cpu",
    }
}
