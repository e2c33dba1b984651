//! Policies: the order in which blocks are evicted.
//!
//! Each policy has a file. A policy only orders blocks: it never reads, frees or waits.

mod auto;
mod belady;
pub(crate) mod heap;
mod hot_list;
mod kind;
mod lfru;
mod lfu;
pub(crate) mod lists;
mod lru;
mod per_layer;
mod ranked;
mod shadow;

#[cfg(test)]
mod conformance;

pub(crate) use belady::{Belady, Future};
pub use hot_list::{HotList, ParseHotListError};
pub use kind::{ParsePolicyError, PolicyKind};

use crate::block::{BlockId, BlockSpec};
use std::collections::BTreeMap;
use terrace_model::{ExpertId, LayerId};

/// An order of eviction of the blocks that have a slot, resident or still being read.
///
/// A block is inserted when its read begins, not when it ends. So the order, and with it what is
/// evicted, depends only on what was requested, not on the timing of the disk.
pub trait Policy: Send {
    /// Notes that `block` was requested and got a slot; it had none before.
    fn on_insert(&mut self, block: BlockId);
    /// Notes that `block`, which has a slot, was requested again.
    fn on_hit(&mut self, block: BlockId);
    /// Notes that `block` has no slot any more, for whatever reason.
    fn on_evict(&mut self, block: BlockId);
    /// Returns the first block in the order of eviction for which `evictable` returns true, to make
    /// room for `incoming`. It stays in the order until [`Policy::on_evict`].
    fn victim(&mut self, incoming: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId>;
    /// The same without an incoming block, because the budget has become smaller. Policies whose
    /// order depends on the incoming block override it.
    fn first_out(&mut self, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.victim(BlockId(0), evictable)
    }
}

/// Properties of all blocks that policies know from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Population {
    /// The blocks, by id.
    pub blocks: Vec<Citizen>,
    /// Bytes of all slots together.
    pub arena: u64,
}

/// Properties of a block that policies know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Citizen {
    /// Bytes of its slot.
    pub size: u64,
    /// The rank of its layer among all layers of blocks; blocks outside of layers share the last
    /// rank.
    pub group: u32,
    /// Its layer, if it has one.
    pub layer: Option<LayerId>,
    /// Its expert, if it is a part of one.
    pub expert: Option<ExpertId>,
}

impl Population {
    /// Describes a store's blocks; `size` returns the bytes of a slot.
    pub fn of(blocks: &[BlockSpec], arena: u64, size: impl Fn(&BlockSpec) -> u64) -> Self {
        let mut groups: BTreeMap<Option<LayerId>, u32> =
            blocks.iter().map(|block| (block.layer, 0)).collect();
        let layered = groups.iter_mut().filter(|(layer, _)| layer.is_some());
        let mut next = 0;
        for (_, group) in layered {
            *group = next;
            next += 1;
        }
        if let Some(group) = groups.get_mut(&None) {
            *group = next;
        }
        let citizen = |block: &BlockSpec| Citizen {
            size: size(block),
            group: groups[&block.layer],
            layer: block.layer,
            expert: block.expert,
        };
        Self { blocks: blocks.iter().map(citizen).collect(), arena }
    }

    /// Describes `blocks` blocks of a page each, `per_layer` of them per layer, with room for half
    /// of them.
    #[cfg(test)]
    pub fn of_equals(blocks: u32, per_layer: u32) -> Self {
        let citizen = |block: u32| Citizen {
            size: 4096,
            group: block / per_layer,
            layer: Some(LayerId(block / per_layer)),
            expert: Some(ExpertId(block % per_layer)),
        };
        Self { blocks: (0..blocks).map(citizen).collect(), arena: u64::from(blocks) * 4096 / 2 }
    }
}
