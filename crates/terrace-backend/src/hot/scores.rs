//! How much an expert was used, what is long ago counting less.

/// Tokens after which a use counts half (`docs/benchmarks/devices.md`, experts on a device: 64 beat 256 and 1,024).
pub const HALF_LIFE: u32 = 64;
/// What is known of earlier runs counts as so much of a long time (the same: in full it was worse than knowing nothing): enough to begin with, and soon outweighed by what this run does,
/// whose text is another.
const EARLIER: f64 = 0.125;
/// Weights of uses grow instead of all scores shrinking; from here on all are scaled back.
const MOST: f64 = 1e9;

/// Decayed counts of pairs of token and expert.
#[derive(Clone, Debug)]
pub struct Scores {
    layers: Vec<Vec<f64>>,
    /// What a use counts now.
    weight: f64,
    growth: f64,
}

impl Scores {
    /// Begins with nothing counted, for layers of these numbers of experts.
    pub fn new(experts: impl IntoIterator<Item = u32>) -> Self {
        let layers = experts.into_iter().map(|experts| vec![0.0; experts as usize]).collect();
        Self { layers, weight: 1.0, growth: 2f64.powf(1.0 / f64::from(HALF_LIFE)) }
    }

    /// As if a layer had been used for some time as `counts` say: their shares of `pairs` that a token has.
    pub fn assume(&mut self, layer: usize, counts: &[u64], pairs: u32) {
        let all: f64 = counts.iter().map(|&count| count as f64).sum();
        if all <= 0.0 {
            return;
        }
        // The sum of what is left of `pairs` uses in each of endlessly many tokens.
        let steady = f64::from(pairs) * f64::from(HALF_LIFE) / std::f64::consts::LN_2 * self.weight;
        let known = steady * EARLIER;
        for (score, &count) in self.layers[layer].iter_mut().zip(counts) {
            *score = count as f64 / all * known;
        }
    }

    /// `tokens` more have passed.
    pub fn pass(&mut self, tokens: u32) {
        self.weight *= self.growth.powf(f64::from(tokens));
        if self.weight > MOST {
            let back = self.weight.recip();
            for score in self.layers.iter_mut().flatten() {
                *score *= back;
            }
            self.weight = 1.0;
        }
    }

    /// An expert was used by `pairs` pairs.
    pub fn used(&mut self, layer: usize, expert: u32, pairs: u32) {
        self.layers[layer][expert as usize] += self.weight * f64::from(pairs);
    }

    /// Decayed count of pairs.
    pub fn get(&self, layer: usize, expert: u32) -> f64 {
        self.layers[layer][expert as usize] / self.weight
    }

    /// Experts of a layer.
    pub fn experts(&self, layer: usize) -> u32 {
        u32::try_from(self.layers[layer].len()).expect("from a u32")
    }
}
