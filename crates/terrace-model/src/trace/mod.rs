//! Routing traces: which experts a run's routers chose, in a file of a few bytes per token and layer.
//!
//! A trace describes the managed tensors as the run's store had them, and then, pass by pass (one run of the model's
//! graph, over a prompt's part or one token), what each MoE block asked for. With that, a replay can tell what any other
//! policy or budget would have read.
//!
//! # Format
//! Unsigned numbers are LEB128 varints, texts are a length and UTF-8. In order:
//!
//! - the magic number, the version (1), architecture, model name, alignment of reads;
//! - files: count, then lengths;
//! - managed tensors in the order of the store's blocks: count, then file, offset, length, layer + 1 or 0, experts or 0
//!   for a tensor that is managed as a whole;
//! - records: `1` begins a pass; `2 + g` is an MoE block of group `g`. The first record of a group is followed by its
//!   definition: number of tensors, their indices in the order in which the run asked for them, experts, top-k. Then come
//!   the number of tokens, and for each token its top-k experts in ascending order, each as the difference to the one
//!   before; `0` ends the records;
//! - what the recorded run counted ([`RunRecord`]), and the CRC-32 of all bytes before it, 4 bytes, little endian.

mod error;
mod read;
mod write;

pub use error::TraceError;
pub use write::TraceWriter;

use crate::bytesize::ByteSize;
use crate::ids::{ExpertId, LayerId};
use crate::model::Extent;
use serde::Serialize;

const MAGIC: &[u8; 8] = b"TERRATRC";
const VERSION: u64 = 1;
const RECORD_END: u64 = 0;
const RECORD_PASS: u64 = 1;
const RECORD_GROUP: u64 = 2;

/// The model and the store of a recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceHeader {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`, or nothing.
    pub model: String,
    /// What offsets and lengths of reads were multiples of, in bytes.
    pub alignment: u64,
    /// Lengths of the model's files, in bytes, in shard order.
    pub files: Vec<u64>,
    /// What the run managed, in the order of the store's blocks.
    pub tensors: Vec<TracedTensor>,
}

/// A managed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TracedTensor {
    /// Where its bytes are.
    pub extent: Extent,
    /// Its layer, if it has one.
    pub layer: Option<LayerId>,
    /// How many experts it holds, each a block of its own; none: it is one block.
    pub experts: Option<u32>,
}

/// The tensors that an MoE block asks for with the same ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct TraceGroup {
    /// Indices into [`TraceHeader::tensors`], in the order in which they are asked for.
    pub tensors: Vec<u32>,
    /// Experts of each.
    pub experts: u32,
    /// Experts per token.
    pub top_k: u32,
}

/// What one MoE block asked for in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedBlock {
    /// Index into [`Trace::groups`].
    pub group: u32,
    /// The experts of each token in ascending order, token after token: a multiple of the group's top-k.
    pub ids: Box<[u32]>,
}

/// One run of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Its MoE blocks, in order.
    pub blocks: Vec<TracedBlock>,
}

/// What the recorded run itself counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunRecord {
    /// The cache policy.
    pub policy: String,
    /// RAM for slots.
    pub slots: ByteSize,
    /// Uses of blocks that were there, or on their way.
    pub hits: u64,
    /// Uses of blocks that had to be read.
    pub misses: u64,
    /// Blocks that gave up their slot.
    pub evictions: u64,
    /// Bytes read from the files.
    pub bytes_read: ByteSize,
    /// While reading.
    pub bytes_per_second: u64,
}

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The model and the store.
    pub header: TraceHeader,
    /// The MoE blocks that there are.
    pub groups: Vec<TraceGroup>,
    /// What was run.
    pub passes: Vec<Pass>,
    /// What it cost.
    pub run: RunRecord,
}

impl Trace {
    /// Bytes of all managed blocks.
    pub fn managed_bytes(&self) -> ByteSize {
        self.header.tensors.iter().map(|tensor| ByteSize(tensor.extent.len)).sum()
    }

    /// Managed tensors that are no experts': what they take of the slots is not in the trace.
    pub fn whole_tensors(&self) -> usize {
        self.header.tensors.iter().filter(|tensor| tensor.experts.is_none()).count()
    }

    /// Bytes of one expert of a group over its tensors.
    pub fn bundle(&self, group: &TraceGroup) -> ByteSize {
        let tensors = group.tensors.iter().map(|&index| self.header.tensors[index as usize]);
        tensors.map(|tensor| ByteSize(tensor.extent.len / u64::from(group.experts))).sum()
    }

    /// Bytes of experts that one token uses: over the groups, top-k bundles. A global LRU with less hits nothing.
    pub fn token_cycle(&self) -> ByteSize {
        let groups = self.groups.iter();
        groups.map(|group| ByteSize(self.bundle(group).bytes() * u64::from(group.top_k))).sum()
    }

    /// Tokens of a pass: of its block with the most, since last layers often compute fewer.
    pub fn tokens(&self, pass: &Pass) -> u64 {
        let tokens =
            |block: &TracedBlock| block.ids.len() as u64 / u64::from(self.groups[block.group as usize].top_k);
        pass.blocks.iter().map(tokens).max().unwrap_or(0)
    }

    /// How often each expert was chosen, the hottest first; experts that never were are left out.
    pub fn hot_experts(&self) -> Vec<(LayerId, ExpertId, u64)> {
        let mut counts = std::collections::BTreeMap::new();
        for block in self.passes.iter().flat_map(|pass| &pass.blocks) {
            let first = self.groups[block.group as usize].tensors[0];
            let Some(layer) = self.header.tensors[first as usize].layer else { continue };
            for &id in &block.ids {
                *counts.entry((layer, ExpertId(id))).or_insert(0u64) += 1;
            }
        }
        let mut hot: Vec<_> = counts.into_iter().map(|((layer, id), count)| (layer, id, count)).collect();
        hot.sort_by_key(|&(layer, id, count)| (std::cmp::Reverse(count), layer, id));
        hot
    }
}
