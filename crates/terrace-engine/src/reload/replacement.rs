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

/// Consequence of a tensor that cannot be replaced for the others in changed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// None is replaced.
    #[default]
    All,
    /// The others are. A tensor whose old bytes are gone, because its file was overwritten in place, still
    /// refuses all.
    Acceptable,
}

/// Source of a tensor's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A GGUF file with a tensor of that name and shape, or the first shard of such a split model.
    File(PathBuf),
    /// The bytes that were loaded.
    Original,
}
