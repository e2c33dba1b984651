//! Counts how often routers choose each expert.

use crate::layout::{Cut, Layout};
use crate::routing::Routing;
use terrace_model::LayerId;
use terrace_store::BlockId;

/// Counts by layer and expert, of fixed size.
#[derive(Clone, Debug, Default)]
pub struct ExpertUsage {
    /// First blocks of the expert tensors, ascending, with the start of each one's layer in
    /// `counts`.
    tensors: Box<[(BlockId, usize)]>,
    /// Layers, with their starts in `counts` and their numbers of experts.
    layers: Vec<(LayerId, usize, usize)>,
    /// Number of tokens that chose each expert.
    counts: Box<[u64]>,
}

impl ExpertUsage {
    /// Makes zero counts for the layers of `layout` that have experts.
    pub fn new(layout: &Layout) -> Self {
        let mut layers: Vec<(LayerId, usize, usize)> = Vec::new();
        let mut tensors = Vec::new();
        let mut size = 0;
        for tensor in layout.all() {
            let (Cut::PerExpert { experts }, Some(layer)) = (tensor.cut, tensor.layer) else { continue };
            let experts = experts as usize;
            let known = layers.iter().find(|(other, _, n)| (*other, *n) == (layer, experts));
            let start = known.map_or(size, |(_, start, _)| *start);
            if start == size {
                layers.push((layer, size, experts));
                size += experts;
            }
            tensors.push((tensor.block(0), start));
        }
        Self { tensors: tensors.into(), layers, counts: vec![0; size].into() }
    }

    /// Counts the choice of the MoE block that has a tensor with this first block.
    pub(crate) fn count(&mut self, first: BlockId, routing: &Routing) {
        let Ok(tensor) = self.tensors.binary_search_by_key(&first, |(block, _)| *block) else { return };
        let start = self.tensors[tensor].1;
        for (i, &expert) in routing.touched().iter().enumerate() {
            self.counts[start + expert as usize] += routing.range(i).len() as u64;
        }
    }

    /// The layers with experts, and for each expert how many tokens chose it.
    pub fn layers(&self) -> impl Iterator<Item = (LayerId, &[u64])> {
        self.layers.iter().map(|&(layer, start, experts)| (layer, &self.counts[start..start + experts]))
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}
