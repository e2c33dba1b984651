//! How the model is computed.

use std::path::PathBuf;

/// How the model is computed.
#[derive(Clone, Debug, Default)]
pub struct ComputeOptions {
    /// Compute threads; `None` means what the process may run on.
    pub threads: Option<u32>,
    /// Threads that compute prompts; `None` means the same.
    pub threads_batch: Option<u32>,
    /// A file of [`LayerSkip`](crate::LayerSkip): layers that are not computed. Lossy.
    pub layer_skip: Option<PathBuf>,
}
