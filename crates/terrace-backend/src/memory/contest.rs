//! Who computes the experts in RAM of large batches, where both could: ggml, which copies those that are
//! used to a device, or the lanes with the CPU. The side whose batches take less time, as measured.

use std::time::Duration;
use terrace_ggml::pin::scheduler::OFFLOAD_MIN_BATCH;
use terrace_model::LayerId;
use terrace_model::trial::{Terms, Trial};

/// Fewest tokens of a graph for which ggml's drivers ask for operations on weights in RAM.
pub const LARGE_BATCH: usize = OFFLOAD_MIN_BATCH as usize;
/// Comparison of the sides. In their first batches lanes also learn how to divide their work.
const TERMS: Terms = Terms { first: 2, weight: 0.25, share: 1.0 / 64.0 };
/// Sizes of batches that are compared: powers of two from [`LARGE_BATCH`] on.
const SIZES: usize = 8;

/// Who computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// ggml's own offload.
    #[default]
    Ggml,
    /// The lanes, and the CPU beside them.
    Lanes,
}

const SIDES: [Side; 2] = [Side::Ggml, Side::Lanes];

/// The batch that is being computed.
#[derive(Clone, Copy, Debug)]
struct Batch {
    tokens: usize,
    side: Side,
}

/// The contest of a model. Plain numbers; the scheduler's questions come on the thread that computes.
#[derive(Clone, Debug)]
pub struct Contest {
    /// For batches of about each size; the ways are those of [`SIDES`].
    sizes: [Trial; SIZES],
    /// Layers that lanes could compute.
    layers: Vec<LayerId>,
    batch: Option<Batch>,
    /// The side that the scheduler was last told: graphs that llama.cpp computes again keep it.
    told: Side,
    /// Batches by side.
    counts: [u64; 2],
}

impl Default for Contest {
    fn default() -> Self {
        let (layers, batch, told) = (Vec::new(), None, Side::Ggml);
        Self { sizes: [Trial::new(TERMS); SIZES], layers, batch, told, counts: [0; 2] }
    }
}

impl Contest {
    /// Begins a batch of `tokens` tokens, of which lanes could compute the experts of these layers.
    /// Returns whether its time is wanted.
    pub fn begin(&mut self, tokens: usize, layers: impl Iterator<Item = LayerId>) -> bool {
        self.batch = None;
        self.layers.clear();
        self.layers.extend(layers);
        if tokens < LARGE_BATCH || self.layers.is_empty() {
            return false;
        }
        let side = SIDES[self.sizes[size_of(tokens)].choose(tokens as f64)];
        self.batch = Some(Batch { tokens, side });
        true
    }

    /// Returns true if lanes compute the experts of a layer in the current batch, asked by the scheduler.
    pub fn asks(&mut self, layer: LayerId) -> bool {
        let Some(batch) = self.batch.filter(|_| self.layers.contains(&layer)) else { return false };
        self.told = batch.side;
        batch.side == Side::Lanes
    }

    /// The batch has been computed, in this time; `None` if it failed.
    pub fn end(&mut self, took: Option<Duration>) {
        let Some((Batch { tokens, .. }, took)) = self.batch.take().zip(took) else { return };
        let way = self.told as usize;
        self.sizes[size_of(tokens)].took(way, tokens as f64, took.as_secs_f64());
        self.counts[way] += 1;
    }

    /// Numbers of batches: left to ggml, and computed with lanes.
    pub fn counts(&self) -> [u64; 2] {
        self.counts
    }
}

/// The index of a batch's size.
fn size_of(tokens: usize) -> usize {
    let doublings = (tokens / LARGE_BATCH).max(1).ilog2() as usize;
    doublings.min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of `tokens` tokens with these milliseconds by side. Returns how many of the last 300 lanes
    /// computed, and the time of all in relation to the better side's.
    fn run(contest: &mut Contest, tokens: usize, [ggml, lanes]: [f64; 2]) -> (usize, f64) {
        let (mut there, mut all) = (0, 0.0);
        for nth in 0..600 {
            assert!(contest.begin(tokens, [LayerId(3)].into_iter()));
            assert!(!contest.asks(LayerId(4)), "another layer");
            let by_lanes = contest.asks(LayerId(3));
            let took = if by_lanes { lanes } else { ggml };
            all += took;
            there += usize::from(by_lanes && nth >= 300);
            contest.end(Some(Duration::from_secs_f64(took * 1e-3)));
        }
        (there, all / 600.0 / ggml.min(lanes))
    }

    #[test]
    fn the_faster_side_computes_and_the_other_is_tried_now_and_then() {
        for (times, lanes) in [([100.0, 50.0], 290..=300), ([50.0, 100.0], 0..=10), ([50.0, 500.0], 0..=1)] {
            let (there, time) = run(&mut Contest::default(), 512, times);
            assert!(lanes.contains(&there), "{times:?}: {there}");
            // The first two batches of the slower side, and what is tried.
            let first = 2.0 * (times[0].max(times[1]) / times[0].min(times[1])) / 600.0;
            assert!(time < 1.0 + TERMS.share + first + 0.005, "{times:?}: {time}");
        }
    }

    #[test]
    fn sizes_are_compared_by_themselves_and_follow_what_changes() {
        let mut contest = Contest::default();
        assert!(run(&mut contest, 512, [100.0, 50.0]).0 > 290);
        assert!(run(&mut contest, 40, [10.0, 90.0]).0 < 5);
        assert!(run(&mut contest, 512, [100.0, 50.0]).0 > 290);
        run(&mut contest, 512, [30.0, 50.0]);
        assert!(run(&mut contest, 512, [30.0, 50.0]).0 < 10, "ggml has become faster");
    }

    #[test]
    fn small_batches_failures_and_graphs_that_are_computed_again() {
        let mut contest = Contest::default();
        assert!(!contest.begin(LARGE_BATCH - 1, [LayerId(0)].into_iter()));
        assert!(!contest.begin(LARGE_BATCH, std::iter::empty()));
        assert!(contest.begin(64, [LayerId(0)].into_iter()) && !contest.asks(LayerId(0)));
        contest.end(None);
        assert_eq!(contest.counts(), [0, 0]);
        for _ in 0..4 {
            assert!(contest.begin(64, [LayerId(0)].into_iter()));
            contest.end(Some(Duration::from_millis(1)));
        }
        assert_eq!(contest.counts(), [4, 0], "nothing was asked, so it was as before");
    }
}
