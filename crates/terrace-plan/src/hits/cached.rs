//! Hit rate of an expert cache, which keeps what its policy evicts last, not what will be used most.
//!
//! A hit curve says how many uses go to the hottest experts. A cache does not know these. One that
//! evicts by age holds what was used since some token, of every layer: experts that come back within
//! so many tokens hit, however hot they are. Below the bytes of one token it never hits, because each
//! layer's experts are evicted by those of the other layers before the next token.

use super::curve::{HitCurve, HotClass};
use super::eviction::Eviction;

/// Shares of the experts between two points of a table, which is linear between them.
const STEPS: usize = 128;
/// Tokens up to which each number between two uses of an expert counts by itself; above, ranges that
/// grow by the ratio.
const EACH_GAP: u32 = 24;
const GAP_RATIO: f64 = 1.12;
/// Share of the uses that may be left out, because they come back too late to matter.
const REST: f64 = 1e-3;

/// A cache that all layers share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheShape {
    /// Layers with experts.
    pub layers: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Share of them that a graph uses.
    pub used: f64,
    /// Its eviction policy.
    pub eviction: Eviction,
}

/// Hits by the share of the experts that a cache holds. They never fall with more room.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheHits(Vec<f64>);

impl CacheHits {
    /// Computes the hits of a cache, warm, where graphs use experts as the curve says: what lies between
    /// two uses is taken as normal, which with few experts foretells more than the hottest ones get, so
    /// these bound it. A curve that was measured with a cache says its hits itself.
    pub fn of(curve: &HitCurve, shape: CacheShape) -> Self {
        let shares = (0..=STEPS).map(|step| step as f64 / STEPS as f64);
        if let Some(replayed) = curve.replayed() {
            return Self::rising(shares.map(|share| replayed.hits(share)));
        }
        match shape.eviction {
            Eviction::Rarest => {
                // What a layer has just read passes through, whatever it is.
                let passing = shape.used / f64::from(shape.layers.max(1));
                Self::rising(shares.map(|share| curve.hits((share - passing) / (1.0 - passing).max(1e-9))))
            }
            Eviction::Oldest => {
                let ages = Ages::of(curve, shape.experts, shape.used, shape.layers);
                Self::rising(shares.map(|share| ages.hits(share).min(curve.hits(share))))
            }
            Eviction::OldestOfLayer => {
                let ages = Ages::of(curve, shape.experts, shape.used, 1);
                Self::rising(shares.map(|share| ages.hits(share).min(curve.hits(share))))
            }
        }
    }

    /// Makes a table of hits; the last one is 1, because everything is there.
    fn rising(hits: impl Iterator<Item = f64>) -> Self {
        let mut table: Vec<f64> = hits.collect();
        table[0] = 0.0;
        let mut most: f64 = 0.0;
        for hits in &mut table {
            most = most.max(hits.clamp(0.0, 1.0));
            *hits = most;
        }
        table[STEPS] = 1.0;
        Self(table)
    }

    /// Returns the share of uses that hit if the cache holds the share `held` of the experts.
    pub fn hits(&self, held: f64) -> f64 {
        let at = held.clamp(0.0, 1.0) * STEPS as f64;
        let below = (at.floor() as usize).min(STEPS - 1);
        let (low, high) = (self.0[below], self.0[below + 1]);
        low + (high - low) * (at - below as f64)
    }
}

/// Reuse distance of an expert: by number of tokens, the share of all uses that come back
/// after as many, and how many other experts were used meanwhile.
struct Ages {
    gaps: Vec<Gap>,
    /// Experts of all layers.
    all: f64,
}

struct Gap {
    uses: f64,
    /// Mean and deviation of the number of experts used, of all layers.
    mean: f64,
    deviation: f64,
}

impl Ages {
    /// `used` is the share of `experts` experts that each graph uses, in each of `layers` layers.
    fn of(curve: &HitCurve, experts: u32, used: f64, layers: u32) -> Self {
        let (n, layers) = (f64::from(experts.max(1)), f64::from(layers.max(1)));
        let classes: Vec<HotClass> = curve.classes().into_iter().filter(|c| c.experts > 0.0).collect();
        let chance = |class: &HotClass| (used * class.uses / class.experts).clamp(0.0, 1.0);
        let kinds: Vec<Kind> = classes
            .iter()
            .map(|class| Kind { count: n * class.experts, uses: class.uses, chance: chance(class) })
            .collect();
        // Graphs use a fixed number of experts, so one that is used makes others less likely.
        let spread: f64 = kinds.iter().map(|kind| kind.count * kind.doubt()).sum();
        let shared = if n > 1.0 && spread > 0.0 { n / (n - 1.0) / spread } else { 0.0 };
        // Of its own layer, the expert's two graphs count from and up to its place among those used.
        let chosen: f64 = kinds.iter().map(|kind| kind.count * kind.chance).sum();
        let places = (chosen * chosen - 1.0).max(0.0) / 6.0;
        let (mut gaps, mut from) = (Vec::new(), 1.0);
        loop {
            let next = if from < f64::from(EACH_GAP) { from + 1.0 } else { (from * GAP_RATIO).ceil() };
            let come = |kind: &Kind| kind.uses * (kind.unused(from - 1.0) - kind.unused(next - 1.0));
            let (mean, variance) = touched(&kinds, shared, f64::midpoint(from, next - 1.0));
            gaps.push(Gap {
                uses: kinds.iter().map(come).sum(),
                mean: mean * layers,
                deviation: (variance * layers + places).max(0.0).sqrt(),
            });
            let rest: f64 = kinds.iter().map(|kind| kind.uses * kind.unused(next - 1.0)).sum();
            if rest < REST {
                return Self { gaps, all: n * layers };
            }
            from = next;
        }
    }

    /// Returns the hits of a cache that holds the share `share` of all experts.
    fn hits(&self, share: f64) -> f64 {
        let slots = share * self.all;
        // Room for as many experts as were used between, the one that comes back among them.
        let fits = |gap: &Gap| {
            let spare = slots - gap.mean;
            match gap.deviation {
                narrow if narrow < 1e-3 => f64::from(u8::from(spare > -1e-6)),
                deviation => normal((spare + 0.5) / deviation),
            }
        };
        self.gaps.iter().map(|gap| gap.uses * fits(gap)).sum()
    }
}

/// Experts that are used equally often.
struct Kind {
    count: f64,
    /// Share of all uses.
    uses: f64,
    /// The chance that a graph uses one of them.
    chance: f64,
}

impl Kind {
    fn doubt(&self) -> f64 {
        self.chance * (1.0 - self.chance)
    }

    /// The chance that none of `graphs` graphs uses it.
    fn unused(&self, graphs: f64) -> f64 {
        (1.0 - self.chance).powf(graphs)
    }
}

/// Returns mean and variance of the number of a layer's experts that `graphs` graphs use. `shared`: the
/// covariance of two experts' uses in one graph, per product of their doubts.
fn touched(kinds: &[Kind], shared: f64, graphs: f64) -> (f64, f64) {
    let (mut mean, mut variance) = (0.0, 0.0);
    for (index, one) in kinds.iter().enumerate() {
        let unused = one.unused(graphs);
        mean += one.count * (1.0 - unused);
        variance += one.count * unused * (1.0 - unused);
        for (at, other) in kinds.iter().enumerate() {
            let pairs = one.count * other.count - if at == index { one.count } else { 0.0 };
            let neither = (1.0 - one.chance) * (1.0 - other.chance) - shared * one.doubt() * other.doubt();
            variance += pairs * (neither.max(0.0).powf(graphs) - unused * other.unused(graphs));
        }
    }
    (mean, variance)
}

/// The normal distribution, by its logistic approximation (within 0.01).
fn normal(deviations: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * deviations).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(layers: u32, experts: u32, top_k: u32, eviction: Eviction) -> CacheShape {
        CacheShape { layers, experts, used: f64::from(top_k) / f64::from(experts), eviction }
    }

    /// Hits of a real cache that evicts by age, under uniform routing.
    fn simulated(layers: usize, experts: usize, top_k: usize, slots: usize) -> f64 {
        let (mut state, mut clock) = (1u64, 0u64);
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut last: Vec<Option<u64>> = vec![None; layers * experts];
        let (mut hits, mut uses) = (0, 0);
        for token in 0..600 {
            for layer in 0..layers {
                let mut chosen: Vec<usize> = (0..experts).collect();
                for place in 0..top_k {
                    let other = place + random(experts - place);
                    chosen.swap(place, other);
                }
                chosen.truncate(top_k);
                for expert in chosen {
                    clock += 1;
                    let at = layer * experts + expert;
                    let used = |at: u64| last.iter().flatten().filter(|&&use_| use_ > at).count();
                    if token >= 100 {
                        uses += 1;
                        hits += usize::from(last[at].is_some_and(|at| used(at) < slots));
                    }
                    last[at] = Some(clock);
                }
            }
        }
        f64::from(hits as u32) / f64::from(uses as u32)
    }

    #[test]
    fn as_a_real_cache_under_uniform_routing() {
        for (layers, experts, top_k) in [(4, 8, 2), (6, 32, 4), (3, 64, 8), (12, 16, 1)] {
            let shape = shape(layers as u32, experts as u32, top_k as u32, Eviction::Oldest);
            let table = CacheHits::of(&HitCurve::uniform(), shape);
            for percent in [5, 10, 20, 27, 35, 45, 60, 80, 95] {
                let slots = layers * experts * percent / 100;
                let real = simulated(layers, experts, top_k, slots);
                let hits = table.hits(slots as f64 / (layers * experts) as f64);
                assert!((hits - real).abs() < 0.05, "{layers}x{experts}/{top_k}, {slots}: {hits} {real}");
            }
        }
    }

    #[test]
    fn below_a_token_only_counting_hits() {
        // A token uses a quarter.
        let at = |eviction, held| CacheHits::of(&HitCurve::uniform(), shape(4, 8, 2, eviction)).hits(held);
        assert!(at(Eviction::Oldest, 0.2) < 0.03);
        assert!(at(Eviction::Oldest, 0.3) > 0.2);
        assert!((0.1..0.2).contains(&at(Eviction::Rarest, 0.2)));
        assert!(at(Eviction::OldestOfLayer, 0.2) < 0.2);
    }

    #[test]
    fn near_what_was_measured_on_a_trained_model() {
        // Bundled model, docs/benchmarks/policies.md. Under LRU, texts repeat more than the curve says.
        let curve = HitCurve::typical(64, 8);
        let at = |eviction, held| CacheHits::of(&curve, shape(6, 64, 8, eviction)).hits(held);
        for (held, low, high) in [(0.1, 0.0, 0.01), (0.2, 0.15, 0.33), (0.4, 0.52, 0.62), (0.6, 0.76, 0.83)] {
            let hits = at(Eviction::Oldest, held);
            assert!((low..=high).contains(&hits), "{held}: {hits}");
        }
        for (held, lfru) in [(0.05, 0.08), (0.1, 0.195), (0.2, 0.38), (0.4, 0.657), (0.6, 0.845)] {
            let hits = at(Eviction::Rarest, held);
            assert!((hits - lfru).abs() < 0.05, "{held}: {hits}, {lfru} measured");
        }
    }

    proptest! {
        #[test]
        fn more_room_never_hits_less_and_no_cache_beats_the_curve(
            layers in 1u32..80, experts in 2u32..512, used in 1u32..10, typical in any::<bool>(), kind in 0..3,
        ) {
            let top_k = used.min(experts);
            let curve = if typical { HitCurve::typical(experts, top_k) } else { HitCurve::uniform() };
            let eviction = [Eviction::Oldest, Eviction::OldestOfLayer, Eviction::Rarest][kind as usize];
            let table = CacheHits::of(&curve, shape(layers, experts, top_k, eviction));
            let mut before = 0.0;
            for step in 0..=1000 {
                let held = f64::from(step) / 1000.0;
                let hits = table.hits(held);
                prop_assert!(hits >= before, "{held}");
                // A step of the table may lie above a curve that bends.
                prop_assert!(hits <= curve.hits(held) + 0.03, "{held}: {hits}, {}", curve.hits(held));
                before = hits;
            }
            prop_assert_eq!((table.hits(0.0), table.hits(1.0)), (0.0, 1.0));
        }
    }
}
