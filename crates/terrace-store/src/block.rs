//! Blocks: the units of reading and eviction.

use std::fmt;
use std::sync::Arc;
use terrace_model::{ExpertId, Extent, LayerId};

/// A block of one store: an index into the list that was passed to
/// [`Store::open`](crate::Store::open).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// Returns the number as an index into a slice.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A contiguous run of bytes in a model file that is read and evicted as a unit: a dense tensor, or
/// one expert's part of an expert tensor.
#[derive(Clone, Debug)]
pub struct BlockSpec {
    /// Location of its bytes.
    pub extent: Extent,
    /// Name of its tensor, for errors.
    pub name: Arc<str>,
    /// Its layer, by which some policies divide the slots; `None` outside of layers.
    pub layer: Option<LayerId>,
    /// Its expert, if the tensor holds several.
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

/// An extent widened to the alignment of direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hull {
    /// Offset in the file in bytes, a multiple of the alignment.
    pub offset: u64,
    /// Length in bytes, a multiple of the alignment. The hull may extend past the end of the file.
    pub len: u64,
    /// Bytes of the hull before the extent.
    pub skip: u64,
}

impl Hull {
    /// Returns the smallest hull of `extent` on multiples of `align` (with 1, for buffered reads,
    /// the extent itself).
    ///
    /// The extent must end at least `align` below 2^64, as it does in every file.
    pub fn of(extent: Extent, align: u64) -> Self {
        let offset = extent.offset - extent.offset % align;
        Self { offset, len: extent.end().next_multiple_of(align) - offset, skip: extent.offset - offset }
    }
}
