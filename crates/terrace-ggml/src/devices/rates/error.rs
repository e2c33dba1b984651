//! Why a device was not measured.

use crate::cxx::CxxError;
use terrace_model::ByteSize;

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
pub enum RatesError {
    /// Its driver cannot make a stream of computation.
    #[error("device {device} cannot be started")]
    Start {
        /// ggml's name of it.
        device: String,
    },
    /// It has no room.
    #[error("device {device} has no room for {bytes} of test weights")]
    Memory {
        /// ggml's name of it.
        device: String,
        /// Requested bytes.
        bytes: ByteSize,
    },
    /// A graph failed.
    #[error("device {device} failed to compute (ggml status {status})")]
    Failed {
        /// ggml's name of it.
        device: String,
        /// `ggml_status`.
        status: i32,
    },
    /// Its driver threw.
    #[error("device {device} failed to compute: {source}")]
    Threw {
        /// ggml's name of it.
        device: String,
        source: CxxError,
    },
}
