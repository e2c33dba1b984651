//! Statistics over the comparisons of all positions: the figures that llama.cpp's `perplexity
//! --kl-divergence` prints.

use super::compare::Compared;
use crate::stats::mean::Mean;
use serde::Serialize;

/// A figure with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its standard error.
    pub error: Option<f64>,
}

impl From<Mean> for Estimate {
    fn from(mean: Mean) -> Self {
        Self { value: mean.value, error: mean.error }
    }
}

/// Figures that need only sums.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DivergenceSummary {
    /// Tokens compared.
    pub scored: usize,
    /// The model's perplexity.
    pub perplexity: Estimate,
    /// The base's perplexity.
    pub base_perplexity: Estimate,
    /// Correlation of both models' negative log likelihoods, -1 to 1; `None` if one of them is
    /// constant.
    pub correlation: Option<f64>,
    /// Logarithm of the model's perplexity over the base's.
    pub ln_ratio: Estimate,
    /// The model's perplexity over the base's.
    pub ratio: Estimate,
    /// The model's perplexity less the base's.
    pub difference: Estimate,
    /// Mean Kullback-Leibler divergence from the base.
    pub kld: Estimate,
    /// Mean change of the probability of the token that follows, -1 to 1.
    pub delta_p: Estimate,
    /// Root of the mean square of that change.
    pub delta_p_rms: Estimate,
    /// Share of positions at which both models rank the same token first.
    pub same_top: Estimate,
}

impl DivergenceSummary {
    /// Summarises at least one position. Errors are those of means, propagated through logarithms
    /// and products to first order. Both perplexities come from the same tokens, so differences are
    /// taken token by token.
    pub fn of(all: &[Compared]) -> Self {
        let mean = |of: &dyn Fn(&Compared) -> f64| Mean::of(&all.iter().map(of).collect::<Vec<_>>());
        let (own, base) = (mean(&|c| c.nll), mean(&|c| c.nll_base));
        let (perplexity, base_perplexity) = (own.exp(), base.exp());
        let ln_ratio = mean(&|c| c.nll - c.nll_base);
        let difference = mean(&|c| {
            perplexity.value * (c.nll - own.value) - base_perplexity.value * (c.nll_base - base.value)
        });
        let square = mean(&|c| c.delta_p * c.delta_p);
        let rms = square.value.sqrt();
        let n = all.len() as f64;
        let covariance = mean(&|c| (c.nll - own.value) * (c.nll_base - base.value)).value / (n - 1.0);
        let same = all.iter().filter(|c| c.same_top).count() as f64 / n;
        let same_error = (same * (1.0 - same) / (n - 1.0)).sqrt();
        Self {
            scored: all.len(),
            perplexity: perplexity.into(),
            base_perplexity: base_perplexity.into(),
            correlation: own.error.zip(base.error).map(|(own, base)| covariance / (own * base)),
            ln_ratio: ln_ratio.into(),
            ratio: ln_ratio.exp().into(),
            difference: Estimate { value: perplexity.value - base_perplexity.value, error: difference.error },
            kld: mean(&|c| c.kld).into(),
            delta_p: mean(&|c| c.delta_p).into(),
            delta_p_rms: Estimate { value: rms, error: square.error.map(|error| 0.5 / rms * error) },
            same_top: Estimate { value: same, error: (same_error > 0.0).then_some(same_error) },
        }
    }
}

/// A distribution: minimum, percentiles, maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    pub minimum: f64,
    pub p0_1: f64,
    pub p1: f64,
    pub p5: f64,
    pub p10: f64,
    pub p25: f64,
    pub median: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub maximum: f64,
}

impl Percentiles {
    /// Computes the percentiles of at least one value, interpolating linearly as llama.cpp's tool
    /// does (there in single precision).
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let last = values.len() - 1;
        let at = |share: f64| {
            let place = share * last as f64;
            let (below, rest) = (place as usize, place.fract());
            let above = values[last.min(below + 1)];
            // Interpolating between equal infinite values would give NaN.
            if rest == 0.0 || above == values[below] {
                values[below]
            } else {
                (1.0 - rest) * values[below] + rest * above
            }
        };
        Self {
            minimum: at(0.0),
            p0_1: at(0.001),
            p1: at(0.01),
            p5: at(0.05),
            p10: at(0.1),
            p25: at(0.25),
            median: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            maximum: at(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compared() -> impl Strategy<Value = Compared> {
        (0.01_f64..9.0, 0.01_f64..9.0, 0.0_f64..2.0, any::<bool>()).prop_map(
            |(nll, nll_base, kld, same_top)| Compared {
                nll,
                nll_base,
                kld,
                delta_p: (-nll).exp() - (-nll_base).exp(),
                same_top,
            },
        )
    }

    proptest! {
        /// llama.cpp's formulas over sums of squares and products.
        #[test]
        fn figures_are_those_of_llama_cpp(all in prop::collection::vec(compared(), 12..60)) {
            let n = all.len() as f64;
            let sum = |of: fn(&Compared) -> f64| all.iter().map(of).sum::<f64>();
            let mean_and_error = |sum: f64, squares: f64| {
                let mean = sum / n;
                (mean, ((squares / n - mean * mean) / (n - 1.0)).sqrt())
            };
            let own = mean_and_error(sum(|c| c.nll), sum(|c| c.nll * c.nll));
            let base = mean_and_error(sum(|c| c.nll_base), sum(|c| c.nll_base * c.nll_base));
            let covariance = (sum(|c| c.nll * c.nll_base) / n - own.0 * base.0) / (n - 1.0);
            let kld = mean_and_error(sum(|c| c.kld), sum(|c| c.kld * c.kld));
            let delta = mean_and_error(sum(|c| c.delta_p), sum(|c| c.delta_p * c.delta_p));
            let mse = mean_and_error(sum(|c| c.delta_p.powi(2)), sum(|c| c.delta_p.powi(4)));
            let ratio_error = (own.1 * own.1 + base.1 * base.1 - 2.0 * covariance).sqrt();
            let (ppl, ppl_base) = (own.0.exp(), base.0.exp());
            let difference_error = ((ppl * own.1).powi(2) + (ppl_base * base.1).powi(2)
                - 2.0 * ppl * ppl_base * covariance).sqrt();
            let same = all.iter().filter(|c| c.same_top).count() as f64 / n;

            let got = DivergenceSummary::of(&all);
            let close = |got: f64, expected: f64| (got - expected).abs() < 1e-7 * (1.0 + expected.abs());
            let both = |got: Estimate, value: f64, error: f64| {
                close(got.value, value) && close(got.error.unwrap_or(0.0), error)
            };
            prop_assert!(both(got.perplexity, ppl, ppl * own.1));
            prop_assert!(both(got.base_perplexity, ppl_base, ppl_base * base.1));
            prop_assert!(close(got.correlation.unwrap(), covariance / (own.1 * base.1)));
            prop_assert!(both(got.ln_ratio, own.0 - base.0, ratio_error));
            prop_assert!(both(got.ratio, (own.0 - base.0).exp(), (own.0 - base.0).exp() * ratio_error));
            prop_assert!(both(got.difference, ppl - ppl_base, difference_error), "{:?} {}", got.difference, difference_error);
            prop_assert!(both(got.kld, kld.0, kld.1));
            prop_assert!(both(got.delta_p, delta.0, delta.1));
            prop_assert!(both(got.delta_p_rms, mse.0.sqrt(), 0.5 / mse.0.sqrt() * mse.1));
            prop_assert!(both(got.same_top, same, (same * (1.0 - same) / (n - 1.0)).sqrt()));
            prop_assert_eq!(got.scored, all.len());
        }
    }

    #[test]
    fn equal_models_have_figures_too() {
        let one = Compared { nll: 1.0, nll_base: 1.0, same_top: true, ..Compared::default() };
        let got = DivergenceSummary::of(&[one; 3]);
        assert_eq!((got.perplexity.value, got.perplexity.error), (1.0_f64.exp(), None));
        assert_eq!((got.correlation, got.delta_p_rms), (None, Estimate { value: 0.0, error: None }));
        assert_eq!(got.same_top, Estimate { value: 1.0, error: None });
    }

    #[test]
    fn percentiles_lie_between_neighbours() {
        let of = Percentiles::of((0..=10).rev().map(|i| f64::from(i * i)).collect());
        assert_eq!((of.minimum, of.p10, of.median, of.p90, of.maximum), (0.0, 1.0, 25.0, 81.0, 100.0));
        assert_eq!((of.p5, of.p25, of.p95), (0.5, 6.5, 90.5));
        let one = Percentiles::of(vec![3.0]);
        assert_eq!((one.minimum, one.p99_9, one.maximum), (3.0, 3.0, 3.0));
        let infinite = Percentiles::of(vec![1.0, f64::INFINITY, f64::INFINITY]);
        assert_eq!((infinite.p95, infinite.maximum), (f64::INFINITY, f64::INFINITY));
    }
}
