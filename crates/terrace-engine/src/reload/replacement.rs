//! What is asked for.

use std::path::PathBuf;

/// A tensor that is to come from somewhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Its name.
    pub tensor: String,
    /// Where from.
    pub from: Source,
}

/// Where a tensor's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A GGUF file that has a tensor of that name and shape, or the first shard of a split model that has.
    File(PathBuf),
    /// What was loaded.
    Original,
}
