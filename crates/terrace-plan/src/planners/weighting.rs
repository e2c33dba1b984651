//! Scores of each layer's experts for copies on a device: scores of experts from counts of their uses
//! and from times of their layers, and slots of layers from scores.
//!
//! The five modes with a name of their own, and their constants, are those of the hot cache of
//! adrianhoehne/llama.cpp.

use super::hot_slots::{HotLayer, hot_slots};
use std::fmt;
use std::str::FromStr;
use terrace_model::ByteSize;

/// Default weight of layer times, from 0 (not at all) to 1.
pub const LAYER_CURVE: f64 = 0.5;
/// Uses that are still told apart between experts of the same rank.
const MOST_HITS: u64 = 999_999;
/// The worth of a rank, in uses.
const RANK: f64 = 1e6;
/// Bonus of an expert that is on the device already, by its uses there.
const STICKY: f64 = 0.05;

/// Division of slots for copies among layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// The same share of every layer's experts.
    #[default]
    Even,
    /// By uses alone: the experts with the most uses, in whatever layer.
    Uses,
    /// Interleaved: the best expert of every layer, then every second best, and so on.
    Flat,
    /// By uses, and more for layers that wait longer than the average for the CPU.
    Pressure,
    /// The same, with outliers among the layers smoothed.
    SmoothPressure,
    /// By uses, and more for layers whose experts take longer.
    Time,
    /// By each expert's rank from the end of its own layer's list.
    Balanced,
}

impl Weighting {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Even,
        Self::Uses,
        Self::Flat,
        Self::Pressure,
        Self::SmoothPressure,
        Self::Time,
        Self::Balanced,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Uses => "uses",
            Self::Flat => "flat",
            Self::Pressure => "pressure",
            Self::SmoothPressure => "smooth_pressure",
            Self::Time => "time",
            Self::Balanced => "balanced",
        }
    }
}

impl fmt::Display for Weighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Text that is not a [`Weighting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected even, uses, flat, pressure, smooth_pressure, time or balanced")]
pub struct ParseWeightingError;

impl FromStr for Weighting {
    type Err = ParseWeightingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.replace('-', "_");
        Ok(match text.as_str() {
            "even" => Self::Even,
            "uses" => Self::Uses,
            "flat" => Self::Flat,
            "pressure" => Self::Pressure,
            "smooth_pressure" | "smooth" | "capped" | "capped_pressure" | "soft_pressure" => {
                Self::SmoothPressure
            }
            "time" | "moe_time" | "decode_time" => Self::Time,
            "balanced" | "rank" | "layer_rank" => Self::Balanced,
            _ => return Err(ParseWeightingError),
        })
    }
}

/// Use counts of an expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub expert: u32,
    /// Number of uses, on a device or not.
    pub hits: u64,
    /// Number of uses on a device.
    pub hot: u64,
}

/// Statistics of a layer: the uses of its experts, and average times of one computation, in
/// microseconds. Zero means that a number is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerUse {
    /// Its number.
    pub layer: u32,
    pub experts: Vec<Uses>,
    /// Waiting for the other side after one side has computed its pairs.
    pub join_wait_us: f64,
    /// Computing on the device.
    pub hot_us: f64,
    /// Computing on the CPU.
    pub cold_us: f64,
    /// Pairs that the CPU computes.
    pub cold_pairs: f64,
    /// Computing all of it.
    pub total_us: f64,
}

impl LayerUse {
    /// Returns how much the layer suffers from experts that are not on a device: the first of
    /// several numbers that is known.
    pub fn pressure(&self) -> f64 {
        let longer = self.cold_us - self.hot_us;
        let per_pair =
            if self.cold_pairs > 0.0 { self.join_wait_us.max(longer) / self.cold_pairs } else { 0.0 };
        let all = [self.join_wait_us, longer, self.cold_pairs, per_pair];
        all.into_iter().find(|&value| value > 0.0).unwrap_or(0.0)
    }
}

/// An expert with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// Index of the layer among those given.
    pub layer: usize,
    pub expert: u32,
    /// Its score; the highest come first.
    pub score: f64,
}

/// Returns the experts that were used, best first: by score, then by layer, then by expert. A
/// `curve` that is not from 0 to 1 is [`LAYER_CURVE`].
pub fn scores(weighting: Weighting, curve: f64, layers: &[LayerUse]) -> Vec<Scored> {
    let curve = if (0.0..=1.0).contains(&curve) { curve } else { LAYER_CURVE };
    let weights = weights(weighting, curve, layers);
    let longest = layers.iter().map(|layer| ranked(layer).len()).max().unwrap_or(0);
    let mut all = Vec::new();
    for (index, (layer, weight)) in layers.iter().zip(weights).enumerate() {
        let ranked = ranked(layer);
        let count = ranked.len();
        all.extend(ranked.into_iter().enumerate().map(|(rank, uses)| {
            let by_rank = |most: usize| (most - rank) as f64 * RANK + uses.hits.min(MOST_HITS) as f64;
            let score = match weighting {
                Weighting::Flat => by_rank(longest),
                Weighting::Balanced => by_rank(count),
                Weighting::Even | Weighting::Uses => uses.hits as f64,
                _ => (uses.hits as f64 * weight + STICKY * uses.hot as f64).round().max(1.0),
            };
            Scored { layer: index, expert: uses.expert, score }
        }));
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.layer.cmp(&b.layer)).then(a.expert.cmp(&b.expert)));
    all
}

/// Returns the factor of each layer's uses.
pub fn weights(weighting: Weighting, curve: f64, layers: &[LayerUse]) -> Vec<f64> {
    let pressures: Vec<f64> = layers.iter().map(LayerUse::pressure).collect();
    let known: Vec<f64> = pressures.iter().copied().filter(|&pressure| pressure > 0.0).collect();
    match weighting {
        Weighting::Pressure if !known.is_empty() && curve > 0.0 => {
            let average = known.iter().sum::<f64>() / known.len() as f64;
            let weight = |&pressure: &f64| match pressure > 0.0 {
                true => {
                    (1.0 + curve * (pressure / average - 1.0)).clamp(1.0 - 0.3 * curve, 1.0 + 0.6 * curve)
                }
                false => 1.0,
            };
            pressures.iter().map(weight).collect()
        }
        Weighting::SmoothPressure if !known.is_empty() => {
            let (mut low, mut high) = (percentile(&known, 0.1), percentile(&known, 0.9));
            if high <= low {
                (low, high) = (percentile(&known, 0.0), percentile(&known, 1.0));
            }
            let weight = |&pressure: &f64| 1.0 + 0.3 * curve * share(pressure, low, high).sqrt();
            pressures.iter().map(weight).collect()
        }
        Weighting::Time => {
            let times: Vec<f64> = layers
                .iter()
                .zip(&pressures)
                .map(|(layer, &pressure)| if layer.total_us > 0.0 { layer.total_us } else { pressure })
                .collect();
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let most = times.iter().copied().fold(0.0, f64::max);
            if most <= least {
                return vec![1.0; layers.len()];
            }
            let (low, high) = (1.0 - 0.6 * curve, 1.0 + 0.8 * curve);
            let weight = |&time: &f64| (low + share(time, least, most) * (high - low)).clamp(low, high);
            times.iter().map(weight).collect()
        }
        _ => vec![1.0; layers.len()],
    }
}

/// Returns the slots of each layer within `budget` bytes: as many as it has experts among those
/// with the highest scores. What they leave is divided evenly among all layers.
pub fn slots_by_worth(
    weighting: Weighting,
    curve: f64,
    layers: &[HotLayer],
    uses: &[LayerUse],
    budget: ByteSize,
) -> Vec<u32> {
    if weighting == Weighting::Even {
        return hot_slots(layers, budget);
    }
    let mut slots = vec![0; layers.len()];
    let mut left = budget.bytes();
    for Scored { layer, .. } in scores(weighting, curve, uses) {
        let HotLayer { experts, bundle } = layers[layer];
        if slots[layer] < experts && bundle.bytes() <= left {
            slots[layer] += 1;
            left -= bundle.bytes();
        }
    }
    let others: Vec<HotLayer> = layers
        .iter()
        .zip(&slots)
        .map(|(layer, slots)| HotLayer { experts: layer.experts - slots, ..*layer })
        .collect();
    slots.iter().zip(hot_slots(&others, ByteSize(left))).map(|(slots, more)| slots + more).collect()
}

/// The used experts of a layer, most used first.
fn ranked(layer: &LayerUse) -> Vec<Uses> {
    let mut used: Vec<Uses> = layer.experts.iter().copied().filter(|uses| uses.hits > 0).collect();
    used.sort_by(|a, b| b.hits.cmp(&a.hits).then(a.expert.cmp(&b.expert)));
    used
}

/// The position of `value` between `low` (0) and `high` (1).
fn share(value: f64, low: f64, high: f64) -> f64 {
    if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 }
}

/// The value below which `part` of the values lie, with linear interpolation. `values` is not empty.
fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (at - at.floor())
}
