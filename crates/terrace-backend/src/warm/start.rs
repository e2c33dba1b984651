//! Has the experts read that are probably used most.

use super::RunRecord;
use crate::error::BackendError;
use crate::layout::{Cut, Layout};
use crate::memory::weights::Weights;
use crate::observe::usage::ExpertUsage;
use std::cmp::Ordering;
use terrace_model::learn::LearnFile;
use terrace_model::{ByteSize, ExpertId, LayerId};
use terrace_store::model_record::LayerCounts;
use terrace_store::{BlockId, Store};

/// Uses that a run starts from, by layer and expert.
pub type FirstUses = Vec<(LayerId, Vec<u64>)>;

/// The uses that a run starts from: those of a learn file, and for layers that are not in it those
/// of earlier runs.
pub fn first_uses(learned: Option<&LearnFile>, record: Option<&RunRecord>, usage: &ExpertUsage) -> FirstUses {
    let earlier = |layer: LayerId, experts: usize| {
        let of = |counts: &&LayerCounts| counts.layer == layer.0 && counts.counts.len() == experts;
        Some(record?.before.experts.iter().find(of)?.counts.clone())
    };
    let of = |(layer, experts): (LayerId, usize)| {
        let learned = learned.and_then(|file| file.layer(layer.0));
        let counts = learned.map(|known| known.counts(u32::try_from(experts).unwrap_or(u32::MAX)));
        Some((layer, counts.or_else(|| earlier(layer, experts))?))
    };
    usage.shape().filter_map(of).collect()
}

/// Has the experts read in the background that were used most, as far as the slots have room. Those
/// that devices have copies of are left out.
///
/// # Errors
/// Errors of the store.
pub fn read_hottest(weights: &Weights, first: &FirstUses) -> Result<(), BackendError> {
    let blocks = {
        let (store, lanes) = (weights.store(), weights.lanes());
        let elsewhere = |layer, expert| lanes.as_ref().is_some_and(|lanes| lanes.holds(layer, expert));
        hottest(first, &weights.layout(), &store, room(&store), elsewhere)
    };
    tracing::debug!(blocks = blocks.len(), "reading in the background what earlier runs used most");
    weights.store().fill(blocks)?;
    Ok(())
}

/// Bytes of slots to fill. The rest is left for experts that a prompt needs in passing, so that
/// little of what is filled is evicted at once.
fn room(store: &Store) -> ByteSize {
    ByteSize(store.capacity().bytes() / 8 * 7)
}

/// Blocks of the experts with the largest shares of their layers' uses, hottest first, that fit in
/// `room`. Shares are used because layers are not used equally: in a prompt, the last layer
/// computes only the last token. Experts that are `elsewhere` are left out.
fn hottest(
    layers: &FirstUses,
    layout: &Layout,
    store: &Store,
    room: ByteSize,
    elsewhere: impl Fn(LayerId, u32) -> bool,
) -> Vec<BlockId> {
    let mut experts: Vec<(f64, LayerId, ExpertId)> = Vec::new();
    for (layer, counts) in layers {
        let all: f64 = counts.iter().map(|&count| count as f64).sum();
        for (expert, &count) in (0u32..).zip(counts) {
            if count > 0 && !elsewhere(*layer, expert) {
                experts.push((count as f64 / all, *layer, ExpertId(expert)));
            }
        }
    }
    experts.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal));
    let (mut blocks, mut left) = (Vec::new(), room.bytes());
    for (_, layer, expert) in experts {
        let tensors = layout.tensors().iter().filter(|tensor| tensor.layer == Some(layer));
        let has = |cut: Cut| matches!(cut, Cut::PerExpert { experts } if expert.0 < experts);
        let own = tensors.filter(|tensor| has(tensor.cut)).map(|tensor| tensor.block(expert.0));
        let before = blocks.len();
        blocks.extend(own);
        let size: u64 = blocks[before..].iter().map(|block| store.slot_size(*block).bytes()).sum();
        let Some(rest) = left.checked_sub(size) else {
            blocks.truncate(before);
            break;
        };
        left = rest;
    }
    blocks
}
