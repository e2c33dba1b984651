//! Why a device was not measured.

use terrace_model::ByteSize;

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
pub enum RatesError {
    /// Its driver makes no stream of computation.
    #[error("device {device} cannot be started")]
    Start {
        /// ggml's name of it.
        device: String,
    },
    /// No room.
    #[error("device {device} has no room for {bytes} of test weights")]
    Memory {
        /// ggml's name of it.
        device: String,
        /// What was asked for.
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
}
