//! The placement of all weights.

use super::workload::Workload;

/// Places for all weights. Experts that are on no device share one cache in RAM, across all layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The home of each layer: the place (see [`Costs`](super::costs::Costs)) that holds and computes its
    /// dense weights and its part of the context.
    pub homes: Vec<usize>,
    /// The number of experts, the hottest ones, at the home of each layer, if that is a device.
    pub hot: Vec<u32>,
    /// True for layers whose experts stay in RAM although a device has copies of some; others are read
    /// through slots then. Counts for estimates only.
    pub kept: Vec<bool>,
    /// True for those of [`Workload::matrices`] that are read from disk for every token. Only matrices of
    /// layers at home in RAM can be.
    pub streamed: Vec<bool>,
    /// True if tables are read by row from disk.
    pub tables_streamed: bool,
    /// Bytes of RAM that cache experts.
    pub arena: u64,
}

impl Assignment {
    /// Makes an assignment with everything resident in RAM, whether it fits or not.
    pub fn resident(work: &Workload) -> Self {
        Self {
            homes: vec![0; work.layers.len()],
            hot: vec![0; work.layers.len()],
            kept: vec![false; work.layers.len()],
            streamed: vec![false; work.matrices.len()],
            tables_streamed: false,
            arena: work.expert_bytes(),
        }
    }

    /// Returns the bytes of experts that are on no device.
    pub fn cold_experts(&self, work: &Workload) -> u64 {
        let layers = work.layers.iter().zip(&self.hot);
        layers
            .filter_map(|(layer, &hot)| {
                let experts = layer.experts.as_ref()?;
                Some(
                    experts.bytes / u64::from(experts.count)
                        * u64::from(experts.count - hot.min(experts.count)),
                )
            })
            .sum()
    }

    /// Returns the fewest bytes that the cache needs: a token's experts of the largest tensor,
    /// unless all experts fit in less.
    pub fn least_arena(&self, work: &Workload) -> u64 {
        let layers = work.layers.iter().zip(&self.hot);
        let cold = layers.filter_map(|(layer, &hot)| {
            let experts = layer.experts.as_ref()?;
            (hot < experts.count).then_some(experts.least)
        });
        cold.max().unwrap_or(0).min(self.cold_experts(work))
    }
}
