//! Replays what routers chose with copies on devices, to compare where they start and how many bytes
//! are exchanged, without a device.

use super::cache::HotCache;
use terrace_model::ByteSize;

/// Layers with copies, to replay.
#[derive(Clone, Debug)]
pub struct ReplayedLayer {
    /// Number of experts.
    pub experts: u32,
    /// Bytes of one.
    pub bundle: ByteSize,
    /// Number of copies.
    pub slots: u32,
    /// Uses that the run starts from, by expert; empty if nothing is known.
    pub first: Vec<u64>,
    /// Number of experts that a token uses.
    pub used: u32,
}

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayedCopies {
    /// Pairs of tokens and experts.
    pub pairs: u64,
    /// Those whose expert had a copy.
    pub hot: u64,
    /// Experts copied after the start.
    pub exchanged: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl ReplayedCopies {
    /// The share of pairs whose expert had a copy.
    pub fn hit_rate(&self) -> f64 {
        self.hot as f64 / self.pairs.max(1) as f64
    }
}

/// Replays tokens, each a list of layers (by index) and their experts, with the slots and exchanges of
/// [`Lanes`](super::Lanes): slots are filled by what is known at the start, and after each token `grant`
/// more bytes may be copied.
pub fn replay_copies<'t>(
    layers: &[ReplayedLayer],
    grant: ByteSize,
    tokens: impl Iterator<Item = &'t [(usize, Vec<u32>)]>,
) -> ReplayedCopies {
    let mut cache = HotCache::new(layers.iter().map(|layer| (layer.experts, layer.bundle, layer.slots)));
    for (index, layer) in layers.iter().enumerate().filter(|(_, layer)| !layer.first.is_empty()) {
        cache.assume(index, &layer.first, layer.used);
        for exchange in cache.fill(index) {
            cache.apply(exchange);
        }
    }
    let (mut counts, mut exchanges) = (ReplayedCopies::default(), Vec::new());
    for token in tokens {
        for (layer, experts) in token {
            for &expert in experts {
                counts.pairs += 1;
                counts.hot += u64::from(cache.slot_of(*layer, expert).is_some());
                cache.used(*layer, expert, 1);
            }
        }
        cache.pass(1);
        if grant > ByteSize::ZERO {
            cache.exchanges(grant, &mut exchanges);
            counts.exchanged += exchanges.len() as u64;
            counts.bytes +=
                exchanges.iter().map(|exchange| layers[exchange.layer].bundle.bytes()).sum::<u64>();
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(slots: u32, first: &[u64]) -> ReplayedLayer {
        ReplayedLayer { experts: 4, bundle: ByteSize(10), slots, first: first.to_vec(), used: 1 }
    }

    #[test]
    fn a_good_start_hits_and_exchanges_mend_a_wrong_one() {
        // Expert 2 alone is used.
        let tokens: Vec<Vec<(usize, Vec<u32>)>> = vec![vec![(0, vec![2])]; 100];
        let run = |first: &[u64], grant| {
            replay_copies(&[layer(1, first)], ByteSize(grant), tokens.iter().map(Vec::as_slice))
        };
        assert_eq!(run(&[0, 0, 9, 1], 0), ReplayedCopies { pairs: 100, hot: 100, ..Default::default() });
        assert_eq!(run(&[9, 0, 1, 0], 0).hot, 0);
        assert_eq!(run(&[], 0).hot, 0);
        let mended = run(&[9, 0, 1, 0], 10);
        assert_eq!((mended.exchanged, mended.bytes), (1, 10));
        assert!(mended.hot > 50, "{mended:?}");
        assert_eq!(run(&[], 10).hot, 99, "an empty slot is filled after the first token");
    }
}
