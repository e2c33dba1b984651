//! Counts how often routers choose each expert, and how often a device computes it.

use crate::layout::{Cut, Layout};
use crate::routing::Routing;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_model::LayerId;
use terrace_store::BlockId;

/// Counts by layer and expert, of fixed size. They can be read at any time: one thread counts, and
/// nothing is locked. Counts that reach the end of their range stay there.
#[derive(Debug, Default)]
pub struct ExpertUsage {
    /// First blocks of the expert tensors that the layout knows, ascending, with the index of each
    /// one's layer.
    tensors: Box<[(BlockId, usize)]>,
    layers: Box<[Layer]>,
    /// True if layers are timed whose experts ggml computes in memory.
    timed: AtomicBool,
}

#[derive(Debug)]
struct Layer {
    id: LayerId,
    /// Number of times that the layer was computed.
    calls: AtomicU64,
    /// Pairs, by expert.
    all: Box<[AtomicU64]>,
    /// Pairs that a device computed from a copy, by expert.
    hot: Box<[AtomicU64]>,
    /// Time of its experts in memory, in nanoseconds, as far as it was measured.
    nanos: AtomicU64,
}

/// The counts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerUsage {
    pub layer: LayerId,
    /// Number of times that it was computed.
    pub calls: u64,
    /// Pairs of token and expert, by expert.
    pub all: Vec<u64>,
    /// Pairs that a device computed from a copy, by expert.
    pub hot: Vec<u64>,
    /// Time of its experts in memory, from the router's choice on; zero if it was not measured.
    pub time: Duration,
}

impl ExpertUsage {
    /// Makes zero counts for layers with these numbers of experts. `layout` has the blocks of those
    /// that are streamed or may have copies; all others are found by their names.
    pub fn new(layers: impl IntoIterator<Item = (LayerId, u32)>, layout: &Layout) -> Self {
        let zeros = |experts: u32| (0..experts).map(|_| AtomicU64::new(0)).collect();
        let zero = || AtomicU64::new(0);
        let layer = |(id, experts)| Layer {
            id,
            calls: zero(),
            all: zeros(experts),
            hot: zeros(experts),
            nanos: zero(),
        };
        let mut this = Self { layers: layers.into_iter().map(layer).collect(), ..Self::default() };
        let known = layout.all().iter().filter_map(|tensor| {
            let (Cut::PerExpert { experts }, Some(layer)) = (tensor.cut, tensor.layer) else { return None };
            Some((tensor.block(0), this.index_of(layer, experts)?))
        });
        this.tensors = known.collect();
        this
    }

    /// The index of a layer, by its number of experts.
    pub(crate) fn index_of(&self, layer: LayerId, experts: u32) -> Option<usize> {
        self.layers.iter().position(|known| known.id == layer && known.all.len() == experts as usize)
    }

    fn layer(&self, first: BlockId) -> Option<&Layer> {
        let tensor = self.tensors.binary_search_by_key(&first, |(block, _)| *block).ok()?;
        Some(&self.layers[self.tensors[tensor].1])
    }

    /// Counts the choice of the MoE block that has a tensor with this first block.
    pub(crate) fn count(&self, first: BlockId, routing: &Routing) {
        let Some(layer) = self.layer(first) else { return };
        add(&layer.calls, 1);
        for (i, &expert) in routing.touched().iter().enumerate() {
            add(&layer.all[expert as usize], routing.range(i).len() as u64);
        }
    }

    /// Counts the pairs of the touched experts that are `hot`, given by their indices.
    pub(crate) fn count_hot(&self, first: BlockId, routing: &Routing, hot: impl Fn(usize) -> bool) {
        let Some(layer) = self.layer(first) else { return };
        for (i, &expert) in routing.touched().iter().enumerate().filter(|(index, _)| hot(*index)) {
            add(&layer.hot[expert as usize], routing.range(i).len() as u64);
        }
    }

    /// Takes back what [`ExpertUsage::count_hot`] counted of these touched experts, by their
    /// indices: the device has failed to compute them.
    pub(crate) fn take_back(&self, first: BlockId, routing: &Routing, failed: &[usize]) {
        let Some(layer) = self.layer(first) else { return };
        for &i in failed {
            let count = &layer.hot[routing.touched()[i] as usize];
            let less = count.load(Ordering::Relaxed).saturating_sub(routing.range(i).len() as u64);
            count.store(less, Ordering::Relaxed);
        }
    }

    /// Counts one computation of a layer, given by its index, with these experts. Numbers that are
    /// none of its experts are left out.
    pub(crate) fn count_ids(&self, index: usize, experts: impl Iterator<Item = i32>) {
        let layer = &self.layers[index];
        add(&layer.calls, 1);
        for count in experts.filter_map(|expert| layer.all.get(usize::try_from(expert).ok()?)) {
            add(count, 1);
        }
    }

    /// Has layers timed from the next graph on whose experts ggml computes in memory, which costs one
    /// barrier for each.
    pub fn time_layers(&self) {
        self.timed.store(true, Ordering::Relaxed);
    }

    /// Returns true if they are timed.
    pub(crate) fn times_layers(&self) -> bool {
        self.timed.load(Ordering::Relaxed)
    }

    /// Adds to the time of a layer, given by its index.
    pub(crate) fn add_time(&self, index: usize, nanos: u64) {
        add(&self.layers[index].nanos, nanos);
    }

    /// The layers with experts, and the number of experts of each.
    pub fn shape(&self) -> impl Iterator<Item = (LayerId, usize)> {
        self.layers.iter().map(|layer| (layer.id, layer.all.len()))
    }

    /// The counts of all layers with experts.
    pub fn layers(&self) -> impl Iterator<Item = LayerUsage> {
        let read = |counts: &[AtomicU64]| counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        self.layers.iter().map(move |layer| LayerUsage {
            layer: layer.id,
            calls: layer.calls.load(Ordering::Relaxed),
            all: read(&layer.all),
            hot: read(&layer.hot),
            time: Duration::from_nanos(layer.nanos.load(Ordering::Relaxed)),
        })
    }

    /// All pairs counted, and those of them that devices computed.
    pub fn totals(&self) -> [u64; 2] {
        let sum = |counts: &[AtomicU64]| {
            counts.iter().fold(0u64, |sum, count| sum.saturating_add(count.load(Ordering::Relaxed)))
        };
        self.layers.iter().fold([0, 0], |[all, hot]: [u64; 2], layer| {
            [all.saturating_add(sum(&layer.all)), hot.saturating_add(sum(&layer.hot))]
        })
    }

    /// Returns true if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.layers.iter().all(|layer| layer.calls.load(Ordering::Relaxed) == 0)
    }
}

/// Adds to a count that no other thread changes.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_within_their_range() {
        let usage = ExpertUsage::new([(LayerId(3), 4)], &Layout::default());
        assert!(usage.is_empty());
        usage.count_ids(0, [0, 3, 3, 4, -1].into_iter());
        let layers: Vec<_> = usage.layers().collect();
        assert_eq!(
            layers[0],
            LayerUsage {
                layer: LayerId(3),
                calls: 1,
                all: vec![1, 0, 0, 2],
                hot: vec![0; 4],
                time: Duration::ZERO
            }
        );
        usage.layers[0].all[0].store(u64::MAX, Ordering::Relaxed);
        usage.count_ids(0, std::iter::once(0));
        assert_eq!(usage.layers().next().unwrap().all[0], u64::MAX);
        assert_eq!((usage.index_of(LayerId(3), 4), usage.index_of(LayerId(3), 5)), (Some(0), None));
    }
}
