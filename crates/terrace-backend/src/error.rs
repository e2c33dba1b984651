//! Errors of the backend.

use std::path::PathBuf;
use terrace_model::ByteSize;
use terrace_store::StoreError;

/// Why a graph or a load failed.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The store could not provide the bytes.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A device that computes experts failed.
    #[error(transparent)]
    Device(#[from] terrace_ggml::devices::experts::ExpertDeviceError),
    /// llama.cpp placed a tensor with Terrace that the plan does not contain.
    #[error("tensor {name} was placed with Terrace but is not in the plan")]
    Unplanned { name: String },
    /// An operation needs all experts of a layer as one matrix.
    #[error("operation {op} uses all of the expert tensor {tensor} at once, so it cannot be streamed")]
    WholeExperts {
        /// ggml's name of the operation.
        op: &'static str,
        tensor: String,
    },
    /// The router chose an expert that does not exist.
    #[error("{tensor}: the router chose expert {expert}, but there are only {experts}")]
    NoSuchExpert {
        /// The expert tensor.
        tensor: String,
        /// The id computed by the graph.
        expert: i32,
        /// Number of experts.
        experts: u32,
    },
    /// A row index is outside the table.
    #[error("{tensor}: row {row} is out of range, the table has {rows}")]
    NoSuchRow {
        /// The table.
        tensor: String,
        /// The index.
        row: i32,
        /// Number of rows.
        rows: u64,
    },
    /// ggml has no kernel for the type.
    #[error("{tensor}: ggml cannot multiply by type {ty}")]
    NoKernel {
        tensor: String,
        /// ggml's type name.
        ty: String,
    },
    /// All slots are in use by matrices of the same run.
    #[error("no slot is free for {tensor}: the RAM budget is too small for this graph")]
    NoRoom { tensor: String },
    /// Memory for resident weights could not be allocated.
    #[error("cannot allocate {size} for resident weights")]
    NoMemory {
        /// Requested bytes.
        size: ByteSize,
    },
    /// A model file cannot be mapped.
    #[error("cannot map {}: {source}", path.display())]
    Map {
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A model file is shorter than its header says.
    #[error(
        "{}: tensor {tensor} ({size} at offset {offset}) extends past the end of the file, which has {len}",
        path.display()
    )]
    MapTooShort {
        tensor: String,
        path: PathBuf,
        /// Offset of the tensor.
        offset: u64,
        /// Its length.
        size: ByteSize,
        /// The file's length.
        len: ByteSize,
    },
    /// The thread that populates mapped files could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A layer cannot be skipped in this graph.
    #[error("layer {layer} cannot be skipped: {reason}")]
    Unskippable { layer: u32, reason: String },
    /// ggml's CPU backend failed.
    #[error("ggml's CPU backend failed with status {0}")]
    Cpu(i32),
    /// A weight was placed while no model is being loaded.
    #[error("a weight was placed in Terrace's memory outside a load")]
    NotLoading,
}
