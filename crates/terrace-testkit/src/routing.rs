//! Measures how skewed and how local a model's routing is.

use std::collections::{BTreeSet, HashMap};
use terrace_ggml::testing::routing::Choices;
use terrace_model::ExpertId;

/// Statistics of the choices of a run, averaged over layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutingStats {
    /// Number of traced tokens.
    pub tokens: usize,
    /// Share of all choices that fall on the most used tenth of a layer's experts.
    pub top_tenth: f64,
    /// Share of a token's experts that the token before it used, too.
    pub repeated: f64,
    /// Share of choices that hit an LRU cache of a quarter of each layer's experts.
    pub lru_quarter: f64,
}

impl RoutingStats {
    /// Computes the statistics of a model with `experts` experts per layer. `None` if there are
    /// fewer than two tokens.
    pub fn of(choices: &Choices, experts: u32) -> Option<Self> {
        let tokens = choices.values().map(Vec::len).min().filter(|&n| n >= 2)?;
        let layers = choices.len() as f64;
        let mean = |f: &dyn Fn(&[Vec<ExpertId>]) -> f64| choices.values().map(|l| f(l)).sum::<f64>() / layers;
        Some(Self {
            tokens,
            top_tenth: mean(&|layer| top_share(layer, (experts as usize).div_ceil(10))),
            repeated: mean(&repeated),
            lru_quarter: mean(&|layer| lru_hits(layer, experts as usize / 4)),
        })
    }
}

fn top_share(layer: &[Vec<ExpertId>], top: usize) -> f64 {
    let mut counts: HashMap<ExpertId, usize> = HashMap::new();
    layer.iter().flatten().for_each(|&e| *counts.entry(e).or_default() += 1);
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let all: usize = counts.iter().sum();
    counts.iter().take(top).sum::<usize>() as f64 / all as f64
}

fn repeated(layer: &[Vec<ExpertId>]) -> f64 {
    let shares = layer.windows(2).map(|pair| {
        let before: BTreeSet<_> = pair[0].iter().collect();
        pair[1].iter().filter(|e| before.contains(e)).count() as f64 / pair[1].len() as f64
    });
    shares.sum::<f64>() / (layer.len() - 1) as f64
}

fn lru_hits(layer: &[Vec<ExpertId>], slots: usize) -> f64 {
    let mut cache: Vec<ExpertId> = Vec::new();
    let (mut hits, mut all) = (0usize, 0usize);
    for &expert in layer.iter().flatten() {
        all += 1;
        if let Some(at) = cache.iter().position(|&e| e == expert) {
            cache.remove(at);
            hits += 1;
        } else if cache.len() >= slots.max(1) {
            cache.remove(0);
        }
        cache.push(expert);
    }
    hits as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::LayerId;

    #[test]
    fn known_traces_have_known_numbers() {
        let layer = |ids: &[[u32; 2]]| ids.iter().map(|t| t.map(ExpertId).to_vec()).collect::<Vec<_>>();
        let same = Choices::from([(LayerId(0), layer(&[[0, 1]; 4]))]);
        let stats = RoutingStats::of(&same, 8).unwrap();
        assert_eq!(stats, RoutingStats { tokens: 4, top_tenth: 0.5, repeated: 1.0, lru_quarter: 0.75 });
        let walk = Choices::from([(LayerId(0), layer(&[[0, 1], [2, 3], [4, 5], [6, 7]]))]);
        let stats = RoutingStats::of(&walk, 8).unwrap();
        assert_eq!(stats, RoutingStats { tokens: 4, top_tenth: 0.125, repeated: 0.0, lru_quarter: 0.0 });
        assert_eq!(RoutingStats::of(&Choices::new(), 8), None);
    }
}
