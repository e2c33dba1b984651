//! Compares the predictions of two models at one position.

use crate::base_logits::row::Row;
use crate::stats::log_softmax::LogSum;

/// Tokens with a base log probability at or below this are not counted, as in llama.cpp: the base
/// file does not hold their exact probabilities.
const LEAST: f64 = -16.0;

/// The result of comparing a prediction with the base's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// Negative log likelihood of the token that follows.
    pub nll: f64,
    /// The base's.
    pub nll_base: f64,
    /// Kullback-Leibler divergence from the base: the sum of `p_base * ln(p_base / p)`.
    pub kld: f64,
    /// Probability of the token that follows, minus the base's.
    pub delta_p: f64,
    /// True if both models rank the same token first.
    pub same_top: bool,
}

/// Compares a row of logits with the base's row; `target` is the token that follows.
pub fn compare(logits: &[f32], base: Row<'_>, target: i32) -> Compared {
    let target = target.unsigned_abs() as usize;
    let sum = LogSum::of(logits);
    let (nll, nll_base) = (sum.nll(logits[target]), -base.ln(base.levels()[target]));
    let offset = f64::from(sum.max) + sum.ln_sum;
    let probabilities = base.probabilities();
    let mut kld = 0.0;
    for (&logit, &level) in logits.iter().zip(base.levels()) {
        let ln_base = base.ln(level);
        if ln_base > LEAST {
            kld += probabilities.of(level) * (ln_base - (f64::from(logit) - offset));
        }
    }
    // Of equal logits the first counts, as in the base's row.
    let top = logits.iter().position(|&logit| logit == sum.max);
    Compared {
        nll,
        nll_base,
        kld,
        delta_p: (-nll).exp() - (-nll_base).exp(),
        same_top: top == Some(base.top()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base_logits::row::{encode, words};
    use proptest::prelude::*;

    /// Probabilities by definition.
    fn softmax(logits: &[f32]) -> Vec<f64> {
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        logits.iter().map(|&l| f64::from(l).exp() / sum).collect()
    }

    fn first_max(values: &[f64]) -> usize {
        (0..values.len()).rev().max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap()
    }

    fn pairs() -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
        (2_usize..60).prop_flat_map(|n| {
            let row = || prop::collection::vec(-9.0_f32..6.0, n);
            (row(), row())
        })
    }

    proptest! {
        /// Against the divergence of the full logits, without the 16-bit encoding in between.
        #[test]
        fn it_is_the_divergence_of_the_full_logits((base, logits) in pairs(), target in 0_usize..60) {
            let target = target % base.len();
            let mut row = vec![0; words(base.len())];
            encode(&base, LogSum::of(&base), &mut row);
            let got = compare(&logits, Row::of(&row, base.len()).unwrap(), target as i32);

            let (p, q) = (softmax(&base), softmax(&logits));
            let kld: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
            // At worst, half a level in the same direction for every token, times the largest
            // logarithm.
            let step = 16.0 / 65535.0;
            prop_assert!((got.kld - kld).abs() < 20.0 * step, "{} and {kld}", got.kld);
            prop_assert!((got.nll + q[target].ln()).abs() < 1e-6);
            prop_assert!((got.nll_base + p[target].ln()).abs() < step);
            prop_assert!((got.delta_p - (q[target] - p[target])).abs() < step);
            let close = p.iter().filter(|&&x| x > p[first_max(&p)] * (1.0 - step)).count() > 1;
            prop_assert!(close || got.same_top == (first_max(&p) == first_max(&q)));
        }

        /// Against the exact divergence of the encoded row, without entries on the floor.
        #[test]
        fn it_is_the_divergence_of_the_row((mut base, logits) in pairs(), target in 0_usize..60) {
            let target = target % base.len();
            // Some far below.
            for logit in base.iter_mut().step_by(3) {
                *logit -= 20.0;
            }
            let mut words = vec![0; words(base.len())];
            encode(&base, LogSum::of(&base), &mut words);
            let row = Row::of(&words, base.len()).unwrap();
            let got = compare(&logits, row, target as i32);
            let q = softmax(&logits);
            let kld: f64 = row
                .levels()
                .iter()
                .zip(&q)
                .filter(|&(&level, _)| row.ln(level) > -16.0)
                .map(|(&level, q)| row.ln(level).exp() * (row.ln(level) - q.ln()))
                .sum();
            prop_assert!((got.kld - kld).abs() < 1e-6, "{} and {kld}", got.kld);
            prop_assert_eq!(got.nll_base, -row.ln(row.levels()[target]));
        }
    }

    #[test]
    fn a_model_does_not_diverge_from_itself() {
        let logits: Vec<f32> = (0..999).map(|i| ((i * 37) % 101) as f32 / 6.0).collect();
        let mut words = vec![0; words(logits.len())];
        encode(&logits, LogSum::of(&logits), &mut words);
        let got = compare(&logits, Row::of(&words, logits.len()).unwrap(), 5);
        // Half a level at worst.
        assert!(got.kld.abs() < 16.0 / 65535.0 / 2.0, "{}", got.kld);
        assert!(got.delta_p.abs() < 1e-4 && got.same_top);
    }
}
