//! Compares the uses of two files.

use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use terrace_model::learn::{LearnFile, LearnLayer};

/// By default, one in this many of a layer's experts are its most used ones.
const TOP: usize = 10;

/// Differences between two files.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The layers that both files have.
    pub layers: Vec<Compared>,
    /// Layers that only the first file has.
    pub only_before: Vec<u32>,
    /// Layers that only the second file has.
    pub only_after: Vec<u32>,
    /// Means over the layers.
    pub mean: Numbers,
}

/// One layer.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Its number.
    pub layer: u32,
    /// Number of most used experts that are compared.
    pub top: usize,
    /// Shares from 0 to 1.
    #[serde(flatten)]
    pub numbers: Numbers,
}

/// Shares from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Numbers {
    /// Of the most used experts, those that both files have among theirs.
    pub overlap: f64,
    /// Of all uses, those that went to other experts: half of the sum of differences of shares.
    pub shift: f64,
    /// Of the second file's uses, those of the first file's most used experts.
    pub covered: f64,
    /// The same of the second file's own, which is the most that is possible.
    pub possible: f64,
}

impl Comparison {
    /// Compares each layer that both files have, by its `top` most used experts.
    pub fn of(before: &LearnFile, after: &LearnFile, top: Option<u32>) -> Self {
        let pairs = before.layers.iter().filter_map(|layer| Some((layer, after.layer(layer.layer)?)));
        let layers: Vec<Compared> = pairs.map(|(before, after)| compared(before, after, top)).collect();
        let only = |file: &LearnFile, other: &LearnFile| {
            let alone = file.layers.iter().filter(|layer| other.layer(layer.layer).is_none());
            alone.map(|layer| layer.layer).collect()
        };
        let mean = |of: fn(&Numbers) -> f64| {
            layers.iter().map(|layer| of(&layer.numbers)).sum::<f64>() / layers.len().max(1) as f64
        };
        let mean = Numbers {
            overlap: mean(|numbers| numbers.overlap),
            shift: mean(|numbers| numbers.shift),
            covered: mean(|numbers| numbers.covered),
            possible: mean(|numbers| numbers.possible),
        };
        Self { only_before: only(before, after), only_after: only(after, before), layers, mean }
    }
}

fn compared(before: &LearnLayer, after: &LearnLayer, top: Option<u32>) -> Compared {
    let last = [before, after].map(|layer| layer.experts.last().map_or(0, |uses| uses.expert + 1));
    let experts = last.into_iter().max().unwrap_or(0);
    let shares = [before, after].map(|layer| shares(&layer.counts(experts)));
    let used = [before, after].map(|layer| layer.experts.len()).into_iter().max().unwrap_or(0);
    let top = top.map_or(used.div_ceil(TOP), |top| top as usize).clamp(1, (experts as usize).max(1));
    let [hottest, own] = [0, 1].map(|file| hottest(&shares[file], top));
    let of_after = |chosen: &BTreeSet<usize>| chosen.iter().map(|&expert| shares[1][expert]).sum();
    let common = hottest.intersection(&own).count();
    let differences = shares[0].iter().zip(&shares[1]).map(|(a, b)| (a - b).abs());
    let numbers = Numbers {
        overlap: common as f64 / own.len().max(1) as f64,
        shift: differences.sum::<f64>() / 2.0,
        covered: of_after(&hottest),
        possible: of_after(&own),
    };
    Compared { layer: before.layer, top, numbers }
}

fn shares(counts: &[u64]) -> Vec<f64> {
    let all: f64 = counts.iter().map(|&count| count as f64).sum();
    counts.iter().map(|&count| count as f64 / all.max(1.0)).collect()
}

/// The experts with the largest shares, without those that were not used.
fn hottest(shares: &[f64], top: usize) -> BTreeSet<usize> {
    let mut order: Vec<usize> = (0..shares.len()).filter(|&expert| shares[expert] > 0.0).collect();
    order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
    order.into_iter().take(top).collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>5}  {:>4}  {:>7}  {:>7}  {:>7}  {:>8}",
            "layer", "top", "overlap", "shift", "covered", "possible"
        )?;
        let percent = |share: f64| share * 100.0;
        let mut line = |layer: &str, top: &str, numbers: &Numbers| {
            let Numbers { overlap, shift, covered, possible } = *numbers;
            writeln!(
                f,
                "{layer:>5}  {top:>4}  {:>6.1}%  {:>6.1}%  {:>6.1}%  {:>7.1}%",
                percent(overlap),
                percent(shift),
                percent(covered),
                percent(possible)
            )
        };
        for layer in &self.layers {
            line(&layer.layer.to_string(), &layer.top.to_string(), &layer.numbers)?;
        }
        line("mean", "", &self.mean)?;
        for (which, layers) in [("first", &self.only_before), ("second", &self.only_after)] {
            if !layers.is_empty() {
                let list: Vec<String> = layers.iter().map(u32::to_string).collect();
                writeln!(f, "layers that only the {which} file has: {}", list.join(", "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::learn::ExpertUses;

    fn file(layers: &[(u32, [u64; 4])]) -> LearnFile {
        let layer = |&(layer, counts): &(u32, [u64; 4])| LearnLayer {
            layer,
            experts: (0..)
                .zip(counts)
                .filter(|(_, count)| *count > 0)
                .map(|(expert, cold)| ExpertUses { expert, hot: 0, cold })
                .collect(),
            ..LearnLayer::default()
        };
        LearnFile { layers: layers.iter().map(layer).collect(), ..LearnFile::default() }
    }

    #[test]
    fn shares_are_compared() {
        let before = file(&[(0, [6, 3, 1, 0]), (1, [1, 1, 1, 1])]);
        let after = file(&[(0, [20, 0, 60, 20]), (2, [1, 0, 0, 0])]);
        let compared = Comparison::of(&before, &after, Some(2));
        assert_eq!((&compared.only_before[..], &compared.only_after[..]), (&[1][..], &[2][..]));
        let [layer] = &compared.layers[..] else { panic!("{compared:?}") };
        let Numbers { overlap, shift, covered, possible } = layer.numbers;
        // The hottest two are 0 and 1, then 2 and 0.
        assert!((overlap - 0.5).abs() < 1e-9 && (covered - 0.2).abs() < 1e-9, "{layer:?}");
        assert!((shift - 0.7).abs() < 1e-9 && (possible - 0.8).abs() < 1e-9, "{layer:?}");
        let same = Comparison::of(&before, &before, None);
        let expected = Numbers { overlap: 1.0, shift: 0.0, ..same.mean };
        assert!(same.mean == expected && same.mean.covered == same.mean.possible, "{same:?}");
        assert_eq!(compared.to_string().lines().count(), 5);
        assert_eq!(Comparison::of(&before, &LearnFile::default(), None).mean, Numbers::default());
    }
}
