//! Which block is evicted when room is needed.
//!
//! One file per policy. A policy only orders blocks: it never reads, frees or waits.

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

#[cfg(test)]
mod conformance;

pub(crate) use belady::{Belady, Future};
pub use hot_list::{HotList, ParseHotListError};
pub use kind::PolicyKind;

use crate::block::{BlockId, BlockSpec};
use std::collections::BTreeMap;
use terrace_model::{ExpertId, LayerId};

/// An order of eviction over the blocks that have a slot: those that are resident, and those on their way.
///
/// A block is inserted when its load begins, not when it ends: then the order, and with it what goes, depends on what
/// was asked for alone, and not on when the disk answered.
pub trait Policy: Send {
    /// `block` was asked for and got a slot; it had none before.
    fn on_insert(&mut self, block: BlockId);
    /// `block` has a slot and was asked for again.
    fn on_hit(&mut self, block: BlockId);
    /// `block` has no slot any more, whatever the reason.
    fn on_evict(&mut self, block: BlockId);
    /// The first block in the order of eviction for which `evictable` says yes, to make room for `incoming`. It stays in
    /// the order until [`Policy::on_evict`].
    fn victim(&mut self, incoming: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId>;
    /// The same where no block comes: there is less room. Policies whose order depends on the block that comes have their own.
    fn first_out(&mut self, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.victim(BlockId(0), evictable)
    }
}

/// What policies know of the blocks before the first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Population {
    /// The blocks, by their ids.
    pub blocks: Vec<Citizen>,
    /// Bytes of all slots together.
    pub arena: u64,
}

/// What policies know of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Citizen {
    /// Bytes of its slot.
    pub size: u64,
    /// The rank of its layer among those that there are; blocks outside of layers share the last one.
    pub group: u32,
    /// Its layer.
    pub layer: Option<LayerId>,
    /// The expert that it is a part of.
    pub expert: Option<ExpertId>,
}

impl Population {
    /// Describes a store's blocks; `size` tells the bytes of a slot.
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

    /// `blocks` blocks of a page each, `per_layer` of them in a layer, and room for half of them.
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
