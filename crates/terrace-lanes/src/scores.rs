//! Decayed counts of the uses of experts.

/// Tokens after which a use counts half (`docs/benchmarks/devices.md`, experts on a device: 64 beat
/// 256 and 1,024).
pub const HALF_LIFE: u32 = 64;
/// Weight of earlier runs, relative to steady use (same benchmark: at full weight it was worse than
/// knowing nothing). Enough to start with, and soon outweighed by this run, whose text differs.
const EARLIER: f64 = 0.125;
/// The weight of new uses grows instead of all scores shrinking; at this weight all scores are
/// scaled back.
const MAX_WEIGHT: f64 = 1e9;

/// Decayed counts of pairs of token and expert.
#[derive(Clone, Debug)]
pub struct Scores {
    layers: Vec<Vec<f64>>,
    /// Weight of a use now.
    weight: f64,
    growth: f64,
}

impl Scores {
    /// Makes empty counts for layers with these numbers of experts.
    pub fn new(experts: impl IntoIterator<Item = u32>) -> Self {
        let layers = experts.into_iter().map(|experts| vec![0.0; experts as usize]).collect();
        Self { layers, weight: 1.0, growth: 2f64.powf(1.0 / f64::from(HALF_LIFE)) }
    }

    /// Assumes that a layer has been used for some time in the proportions of `counts`, with
    /// `pairs` pairs per token.
    pub fn assume(&mut self, layer: usize, counts: &[u64], pairs: u32) {
        let all: f64 = counts.iter().map(|&count| count as f64).sum();
        if all <= 0.0 {
            return;
        }
        // The decayed sum of `pairs` uses in each of infinitely many tokens.
        let steady = f64::from(pairs) * f64::from(HALF_LIFE) / std::f64::consts::LN_2 * self.weight;
        let known = steady * EARLIER;
        for (score, &count) in self.layers[layer].iter_mut().zip(counts) {
            *score = count as f64 / all * known;
        }
    }

    /// Advances the time by `tokens`.
    pub fn pass(&mut self, tokens: u32) {
        self.weight *= self.growth.powf(f64::from(tokens));
        if self.weight > MAX_WEIGHT {
            let back = self.weight.recip();
            for score in self.layers.iter_mut().flatten() {
                *score *= back;
            }
            self.weight = 1.0;
        }
    }

    /// Counts `pairs` uses of an expert.
    pub fn used(&mut self, layer: usize, expert: u32, pairs: u32) {
        self.layers[layer][expert as usize] += self.weight * f64::from(pairs);
    }

    /// Decayed count of pairs.
    pub fn get(&self, layer: usize, expert: u32) -> f64 {
        self.layers[layer][expert as usize] / self.weight
    }

    /// Number of experts of a layer.
    pub fn experts(&self, layer: usize) -> u32 {
        u32::try_from(self.layers[layer].len()).expect("from a u32")
    }
}
