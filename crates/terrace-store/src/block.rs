//! Blocks: what is loaded and evicted as a unit.

use std::fmt;
use std::sync::Arc;
use terrace_model::{ExpertId, Extent, LayerId};

/// A block of one store: the index into the list that [`Store::open`](crate::Store::open) was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The index for slices.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One contiguous run of a model file that is loaded and evicted as a unit: a dense tensor, or one expert's part of
/// an expert tensor.
#[derive(Clone, Debug)]
pub struct BlockSpec {
    /// Where its bytes are.
    pub extent: Extent,
    /// The tensor that it belongs to, for errors.
    pub name: Arc<str>,
    /// The layer that it belongs to, if to one: policies keep layers apart by it.
    pub layer: Option<LayerId>,
    /// Which expert's part it is, if the tensor holds several.
    pub expert: Option<ExpertId>,
}

impl fmt::Display for BlockSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expert {
            Some(expert) => write!(f, "{}[{expert}]", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// An extent widened to what direct I/O can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hull {
    /// Bytes from the start of the file, a multiple of the alignment.
    pub offset: u64,
    /// Bytes, a multiple of the alignment. May reach beyond the end of the file.
    pub len: u64,
    /// Bytes of the hull before the extent begins.
    pub skip: u64,
}

impl Hull {
    /// The smallest hull of `extent` on multiples of `align` (1 for buffered reads: the extent itself).
    ///
    /// The extent must end at least `align` below 2^64, as every file's does.
    pub fn of(extent: Extent, align: u64) -> Self {
        let offset = extent.offset - extent.offset % align;
        Self { offset, len: extent.end().next_multiple_of(align) - offset, skip: extent.offset - offset }
    }
}
