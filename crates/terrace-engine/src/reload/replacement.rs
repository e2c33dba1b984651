//! Requested replacements.

use std::path::PathBuf;

/// A tensor to replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Its name.
    pub tensor: String,
    /// The new source of its bytes.
    pub from: Source,
}

/// Where a tensor's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A GGUF file with a tensor of that name and shape, or the first shard of such a split model.
    File(PathBuf),
    /// The bytes that were loaded.
    Original,
}
