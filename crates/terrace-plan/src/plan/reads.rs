//! Choices of the page cache for reads.

use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_model::ByteSize;

/// Why reads bypass the page cache, or go through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReadsReason {
    /// Weights are mapped because they fit.
    EverythingFits,
    /// Weights are mapped because the user wants it.
    MappedAsAsked,
    /// Every weight is read only once.
    NothingStreamed,
    /// Reads are buffered if the page cache can hold nearly all streamed weights, and direct if
    /// not.
    PageCache {
        /// Bytes of streamed weights.
        streamed: ByteSize,
        /// Bytes that the page cache could hold.
        cache: ByteSize,
    },
}

impl ReadsReason {
    /// Returns whether reads are direct, and why. Reading through the page cache pays if the cache
    /// can hold nearly all streamed weights; otherwise it costs a copy, and takes memory from other
    /// processes.
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
