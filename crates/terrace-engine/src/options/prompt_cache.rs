//! Conversations that are kept.

use std::path::PathBuf;
use terrace_model::ByteSize;
use terrace_plan::Budget;

/// Where conversations are kept when others take their place in the context.
#[derive(Clone, Debug)]
pub struct PromptCacheOptions {
    /// RAM for them; [`Budget::Auto`] means as the plan says.
    pub ram: Budget,
    /// A directory for them, and the most bytes that they may take there.
    pub disk: Option<(PathBuf, ByteSize)>,
    /// Whether callers may save sessions in files.
    pub files: bool,
}

impl Default for PromptCacheOptions {
    fn default() -> Self {
        Self { ram: Budget::Bytes(ByteSize::ZERO), disk: None, files: false }
    }
}
