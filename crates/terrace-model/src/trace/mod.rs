//! Routing traces: the experts that a run's routers chose, in a file of a few bytes per token and
//! layer.
//!
//! A trace describes the streamed tensors as the run's store had them. Then it lists, pass by pass,
//! the experts that each MoE block requested; a pass is one run of the model's graph, over part of
//! a prompt or over one token. From this a replay can compute what any other policy or budget would
//! have read.
//!
//! # Format
//! Unsigned numbers are LEB128 varints; texts are a length followed by UTF-8. In order:
//!
//! - the magic number, the version (1), architecture, model name, alignment of reads;
//! - files: count, then lengths;
//! - streamed tensors in the order of the store's blocks: count, then for each one file, offset,
//!   length, layer + 1 or 0, and its number of experts, or 0 if the tensor is streamed as a whole;
//! - records: `1` begins a pass; `2 + g` is an MoE block of group `g`. The first record of a group
//!   is followed by its definition: number of tensors, their indices in the order in which the run
//!   requested them, experts, top-k. Then come the number of tokens, and for each token its top-k
//!   experts in ascending order, each as the difference to the one before; `0` ends the records;
//! - the counters of the recorded run ([`RunRecord`]), and the CRC-32 of all bytes before it, 4
//!   bytes, little endian.

mod error;
mod read;
mod write;

pub use error::TraceError;
pub use write::TraceWriter;

use crate::bytesize::ByteSize;
use crate::ids::LayerId;
use crate::model::Extent;
use serde::Serialize;

/// The bytes that a trace begins with.
pub const MAGIC: &[u8; 8] = b"TERRATRC";
const VERSION: u64 = 1;
const RECORD_END: u64 = 0;
const RECORD_PASS: u64 = 1;
const RECORD_GROUP: u64 = 2;

/// The model and the store of a recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceHeader {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`, or empty.
    pub model: String,
    /// Alignment of the offsets and lengths of reads, in bytes.
    pub alignment: u64,
    /// Lengths of the model's files, in bytes, in shard order.
    pub files: Vec<u64>,
    /// The streamed tensors, in the order of the store's blocks.
    pub tensors: Vec<TracedTensor>,
}

/// A streamed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TracedTensor {
    /// Location of its bytes.
    pub extent: Extent,
    /// Its layer; `None` for a tensor outside of layers.
    pub layer: Option<LayerId>,
    /// Number of experts in it, each a block of its own; `None` if the tensor is one block.
    pub experts: Option<u32>,
}

/// The tensors that an MoE block uses with the same expert ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct TraceGroup {
    /// Indices into [`TraceHeader::tensors`], in the order in which they are requested.
    pub tensors: Vec<u32>,
    /// Number of experts in each tensor.
    pub experts: u32,
    /// Experts per token.
    pub top_k: u32,
}

/// The experts that one MoE block requested in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedBlock {
    /// Index into [`Trace::groups`].
    pub group: u32,
    /// The experts of each token in ascending order, token after token. The length is a multiple of
    /// the group's top-k.
    pub ids: Box<[u32]>,
}

/// One run of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Its MoE blocks, in order.
    pub blocks: Vec<TracedBlock>,
}

/// The counters of the recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunRecord {
    /// The cache policy.
    pub policy: String,
    /// RAM for slots.
    pub slots: ByteSize,
    /// Uses of blocks that were in a slot or being read.
    pub hits: u64,
    /// Uses of blocks that had to be read.
    pub misses: u64,
    /// Number of evicted blocks.
    pub evictions: u64,
    /// Bytes read from the files.
    pub bytes_read: ByteSize,
    /// Bytes per second while reading.
    pub bytes_per_second: u64,
}

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The model and the store.
    pub header: TraceHeader,
    /// The model's MoE blocks.
    pub groups: Vec<TraceGroup>,
    /// The passes, in order.
    pub passes: Vec<Pass>,
    /// The counters of the run.
    pub run: RunRecord,
}

impl Trace {
    /// Returns the bytes of all streamed blocks.
    pub fn managed_bytes(&self) -> ByteSize {
        self.header.tensors.iter().map(|tensor| ByteSize(tensor.extent.len)).sum()
    }

    /// Returns the number of streamed tensors that do not hold experts. The trace does not record
    /// how they use the slots.
    pub fn whole_tensors(&self) -> usize {
        self.header.tensors.iter().filter(|tensor| tensor.experts.is_none()).count()
    }

    /// Returns the bytes of one expert of a group, over all of the group's tensors.
    pub fn bundle(&self, group: &TraceGroup) -> ByteSize {
        let tensors = group.tensors.iter().map(|&index| self.header.tensors[index as usize]);
        tensors.map(|tensor| ByteSize(tensor.extent.len / u64::from(group.experts))).sum()
    }

    /// Returns the bytes of experts that one token uses: top-k bundles of every group. A global LRU
    /// with smaller slots never hits.
    pub fn token_cycle(&self) -> ByteSize {
        let groups = self.groups.iter();
        groups.map(|group| ByteSize(self.bundle(group).bytes().saturating_mul(group.top_k.into()))).sum()
    }

    /// Returns the number of tokens of a pass: that of the block with the most, because the last
    /// layers often compute fewer.
    pub fn tokens(&self, pass: &Pass) -> u64 {
        let tokens =
            |block: &TracedBlock| block.ids.len() as u64 / u64::from(self.groups[block.group as usize].top_k);
        pass.blocks.iter().map(tokens).max().unwrap_or(0)
    }
}
