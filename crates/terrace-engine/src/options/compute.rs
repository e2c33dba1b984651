//! How the model is computed.

use crate::lossy::LossySource;
use std::path::PathBuf;

/// How the model is computed.
#[derive(Clone, Debug, Default)]
pub struct ComputeOptions {
    /// Compute threads; `None` means one for each CPU that the process may run on.
    pub threads: Option<u32>,
    /// Compute threads for prompts; `None` means the same number.
    pub threads_batch: Option<u32>,
    /// A file of [`LayerSkip`](crate::LayerSkip): layers that are not computed. Lossy.
    pub layer_skip: Option<PathBuf>,
    /// What else is lossy.
    pub lossy: Option<LossySource>,
}
