//! Why a device does not compute experts.

use terrace_model::ByteSize;

/// Why a device does not compute for us.
#[derive(Debug, thiserror::Error)]
pub enum ExpertDeviceError {
    /// Its driver makes no stream of computation.
    #[error("device {device} cannot be started")]
    Start {
        /// ggml's name of it.
        device: String,
    },
    /// No room.
    #[error("device {device} has no room for {bytes}")]
    Memory {
        /// ggml's name of it.
        device: String,
        /// What was asked for.
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
    /// It was reached over a network, and is not any more.
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
}
