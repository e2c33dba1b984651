//! Whether reads pass the page cache by.

use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_model::ByteSize;

/// Why reads pass the page cache by, or go through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReadsReason {
    /// Weights are mapped because they fit.
    EverythingFits,
    /// Weights are mapped because that was asked for.
    MappedAsAsked,
    /// There is nothing to read but what is read once.
    NothingStreamed,
    /// The page cache holds what is streamed, nearly, or it does not.
    PageCache {
        /// What is streamed.
        streamed: ByteSize,
        /// What the page cache could hold.
        cache: ByteSize,
    },
}

impl ReadsReason {
    /// Reading through the page cache pays where the cache can hold (nearly) all of what is streamed; otherwise it
    /// only copies, and takes memory from others.
    pub(crate) fn of(streamed: ByteSize, cache: ByteSize) -> (bool, Self) {
        if streamed == ByteSize::ZERO {
            return (false, Self::NothingStreamed);
        }
        let nearly = ByteSize(streamed.bytes() - streamed.bytes() / 10);
        (cache < nearly, Self::PageCache { streamed, cache })
    }
}

impl fmt::Display for ReadsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EverythingFits => f.write_str("everything fits, so nothing has to be copied"),
            Self::MappedAsAsked => f.write_str("as requested"),
            Self::NothingStreamed => {
                f.write_str("nothing is streamed, and the file may be in the page cache already")
            }
            Self::PageCache { streamed, cache } => {
                write!(f, "{streamed} are streamed, the page cache could hold {cache}")
            }
        }
    }
}
