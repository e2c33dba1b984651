//! Errors of devices that compute experts.

use crate::cxx::CxxError;
use terrace_model::ByteSize;

/// Why a device does not compute experts.
#[derive(Debug, thiserror::Error)]
pub enum ExpertDeviceError {
    /// Its driver cannot make a stream of computation.
    #[error("device {device} cannot be started")]
    Start {
        /// ggml's name of it.
        device: String,
    },
    /// It has no room.
    #[error("device {device} has no room for {bytes}")]
    Memory {
        /// ggml's name of it.
        device: String,
        /// Requested bytes.
        bytes: ByteSize,
    },
    /// It cannot compute a node of the block.
    #[error("device {device} cannot compute {op}")]
    Unsupported {
        /// ggml's name of it.
        device: String,
        /// ggml's name of the operation.
        op: &'static str,
    },
    /// It was reached over a network, and no longer can be.
    #[error("device {device} is lost: an RPC server has ended")]
    Lost {
        /// ggml's name of it.
        device: String,
    },
    /// A graph failed.
    #[error("device {device} failed to compute experts (ggml status {status})")]
    Failed {
        /// ggml's name of it.
        device: String,
        /// `ggml_status`.
        status: i32,
    },
    /// Its driver threw.
    #[error("device {device} failed to compute experts: {source}")]
    Threw {
        /// ggml's name of it.
        device: String,
        source: CxxError,
    },
}
