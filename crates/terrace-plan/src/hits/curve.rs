//! Hit rate of expert uses by resident share of the experts.

/// A hit curve: the expected share of expert uses that hit, by the share of the experts' bytes that
/// is resident. It is linear between points, concave, and leads from (0, 0) to (1, 1).
///
/// The curve is concave because the hottest experts are kept first. One curve serves all layers and
/// tiers, with the hotter experts in the faster tier. A cache evicts by what it has seen, and hits
/// less often ([`CacheHits`](super::CacheHits)).
#[derive(Clone, Debug, PartialEq)]
pub struct HitCurve {
    /// Residency and hits, both from 0 to 1, ascending.
    points: Vec<(f64, f64)>,
    /// Hits of a cache of each size, if these were measured.
    replayed: Option<Replayed>,
}

/// Hit rates by cache size, ascending in both, with both corners.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed(Vec<(f64, f64)>);

impl Replayed {
    /// Returns the hits of a cache that holds this share of the experts.
    pub fn hits(&self, share: f64) -> f64 {
        between(&self.0, share)
    }
}

/// Residencies at which curves given by a formula are sampled.
const SAMPLES: [f64; 9] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0];

/// A linear piece of a curve: a class of experts that are used equally often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotClass {
    /// Share of the experts.
    pub experts: f64,
    /// Share of the uses.
    pub uses: f64,
}

impl HitCurve {
    /// Makes the curve of uniform routing: all experts are used equally often and tokens are
    /// independent, so a resident share of the experts hits that share of the uses.
    pub fn uniform() -> Self {
        Self { points: vec![(0.0, 0.0), (1.0, 1.0)], replayed: None }
    }

    /// Makes the typical curve of trained models with `experts` (n) experts, `top_k` (k) of them
    /// used: `1 - (1 - residency)^g` with `g = max(1, 0.8 log2(n / k))`.
    ///
    /// With `g = 2.1` the formula is within a point of what the bundled model (8 of 64) measures
    /// with `lfru` at 20, 40 and 60 % residency (`docs/benchmarks/policies.md`). Models that use a
    /// smaller share of their experts repeat themselves more. Figures that others reported
    /// correspond to these `g`: Mixtral 8x7B (2 of 8) 1.5, gpt-oss-20b (4 of 32) 2.0, Qwen3-30B-A3B
    /// (8 of 128) 5 to 6, Qwen3.5-35B (8 of 256) 4, Qwen3-Next (10 of 512) 2.4 to 3.6,
    /// DeepSeek-V4-Flash (6 of 256) 6.4. The factor 0.8 stays below the middle of these.
    pub fn typical(experts: u32, top_k: u32) -> Self {
        let sparsity = f64::from(experts.max(1)) / f64::from(top_k.max(1));
        let exponent = (0.8 * sparsity.log2()).max(1.0);
        let points = SAMPLES.iter().map(|&share| (share, 1.0 - (1.0 - share).powf(exponent))).collect();
        Self { points, replayed: None }
    }

    /// Makes a curve through measured points (share of the experts that a cache holds, hits), such as
    /// replays of a trace with several budgets and the policy of the run. Both ends are added, and
    /// points below the line between their neighbours are left out, except for what is said of
    /// caches.
    ///
    /// # Errors
    /// If a coordinate is not between 0 and 1.
    pub fn measured(points: impl IntoIterator<Item = (f64, f64)>) -> Result<Self, CurveError> {
        let mut all = vec![(0.0, 0.0), (1.0, 1.0)];
        for (residency, hits) in points {
            let within = |x: f64| (0.0..=1.0).contains(&x);
            if !within(residency) || !within(hits) {
                return Err(CurveError { residency: residency.to_string(), hits: hits.to_string() });
            }
            if residency > 0.0 && residency < 1.0 {
                all.push((residency, hits));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        all.dedup_by(|later, kept| later.0 == kept.0);
        let mut most: f64 = 0.0;
        let rising = all.iter().map(|&(share, hits)| {
            most = most.max(hits);
            (share, most)
        });
        let replayed = Some(Replayed(rising.collect()));
        let mut hull: Vec<(f64, f64)> = Vec::new();
        for point in all {
            while let [.., before, last] = hull[..]
                && slope(before, point) >= slope(before, last)
            {
                hull.pop();
            }
            hull.push(point);
        }
        Ok(Self { points: hull, replayed })
    }

    /// Returns the share of hits at a residency.
    pub fn hits(&self, residency: f64) -> f64 {
        between(&self.points, residency)
    }

    /// Returns what caches of each size hit, if that was measured.
    pub const fn replayed(&self) -> Option<&Replayed> {
        self.replayed.as_ref()
    }

    /// Returns the share of a layer's experts that a graph of `tokens` independent tokens uses, if a
    /// token uses the share `used`: with skewed routing fewer than with uniform.
    pub fn touched(&self, used: f64, tokens: f64) -> f64 {
        if tokens <= 1.0 {
            return used;
        }
        self.classes().iter().map(|class| class.touched(used, tokens)).sum()
    }

    /// Returns the curve of graphs of `tokens` independent tokens: the share of the experts that such
    /// a graph uses which are resident.
    #[must_use]
    pub fn of_graphs(&self, used: f64, tokens: f64) -> Self {
        let all = self.touched(used, tokens);
        if tokens <= 1.0 || all <= 0.0 {
            return self.clone();
        }
        let (mut residency, mut hits) = (0.0, 0.0);
        let points = self.classes().into_iter().map(|class| {
            residency += class.experts;
            hits += class.touched(used, tokens) / all;
            (residency, hits.min(1.0))
        });
        Self { points: [(0.0, 0.0)].into_iter().chain(points).collect(), replayed: None }
    }

    /// Returns the curve as classes of experts, the hottest first.
    pub fn classes(&self) -> Vec<HotClass> {
        let pairs = self.points.windows(2);
        pairs.map(|pair| HotClass { experts: pair[1].0 - pair[0].0, uses: pair[1].1 - pair[0].1 }).collect()
    }
}

impl HotClass {
    /// Returns the share of all experts that are of this class and used by one of `tokens` tokens.
    fn touched(&self, used: f64, tokens: f64) -> f64 {
        if self.experts <= 0.0 {
            return 0.0;
        }
        let each = (used * self.uses / self.experts).min(1.0);
        self.experts * (1.0 - (1.0 - each).powf(tokens))
    }
}

/// Returns the value at `share` on the lines between points.
fn between(points: &[(f64, f64)], share: f64) -> f64 {
    let share = share.clamp(0.0, 1.0);
    let above = points.partition_point(|point| point.0 < share).clamp(1, points.len() - 1);
    let (low, high) = (points[above - 1], points[above]);
    low.1 + slope(low, high) * (share - low.0)
}

fn slope(from: (f64, f64), to: (f64, f64)) -> f64 {
    (to.1 - from.1) / (to.0 - from.0)
}

/// A point that cannot be on a curve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hit rate of {hits} at a residency of {residency}: both must be between 0 and 1")]
pub struct CurveError {
    residency: String,
    hits: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn near_what_was_measured() {
        // Bundled model, lfru, docs/benchmarks/policies.md; 8 of 64 gives g = 2.4.
        let curve = HitCurve::typical(64, 8);
        for (residency, hits) in [(0.2, 0.378), (0.4, 0.663), (0.6, 0.850)] {
            assert!((curve.hits(residency) - hits).abs() < 0.06, "{residency}: {}", curve.hits(residency));
        }
        assert!(HitCurve::typical(128, 8).hits(0.4) < 0.9, "Qwen3-30B-A3B reports 0.90 to 0.95");
        assert_eq!(HitCurve::typical(8, 8), HitCurve::typical(1, 1));
        assert!((HitCurve::uniform().hits(0.3) - 0.3).abs() < 1e-12);
    }

    #[test]
    fn graphs_of_many_tokens_use_most_experts() {
        let (typical, uniform) = (HitCurve::typical(384, 8), HitCurve::uniform());
        let used = 8.0 / 384.0;
        assert!((uniform.touched(used, 32.0) - (1.0 - (1.0 - used).powi(32))).abs() < 1e-12);
        assert_eq!(typical.touched(used, 1.0), used);
        assert_eq!(typical.of_graphs(used, 1.0), typical);
        let mut before = (used, 1.0);
        for tokens in [2.0, 8.0, 64.0, 4096.0] {
            let (touched, hits) = (typical.touched(used, tokens), typical.of_graphs(used, tokens).hits(0.3));
            assert!(touched > before.0 && touched < uniform.touched(used, tokens) + 1e-9, "{tokens}");
            assert!(hits < before.1 && hits > 0.3 - 1e-9, "{tokens}: {hits}");
            before = (touched, hits);
        }
        assert!(before.0 > 0.8 && before.1 < 0.36, "nearly all are used: {before:?}");
    }

    proptest! {
        #[test]
        fn curves_are_concave_and_end_at_the_corners(
            points in prop::collection::vec((0.0..=1.0, 0.0..=1.0), 0..12), at in 0.0..=1.0f64, step in 0.0..=0.5f64,
        ) {
            let curve = HitCurve::measured(points.clone()).unwrap();
            prop_assert_eq!((curve.hits(0.0), curve.hits(1.0)), (0.0, 1.0));
            let middle = (curve.hits(at - step) + curve.hits(at + step)) / 2.0;
            if at - step >= 0.0 && at + step <= 1.0 {
                prop_assert!(curve.hits(at) >= middle - 1e-9);
            }
            for (residency, hits) in points.into_iter().filter(|p| p.0 > 0.0 && p.0 < 1.0) {
                prop_assert!(curve.hits(residency) >= hits - 1e-9, "a hull is above its points");
            }
            let classes = curve.classes();
            prop_assert!((classes.iter().map(|c| c.experts).sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!((classes.iter().map(|c| c.uses).sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
