//! Likelihoods of tokens under rows of logits.

use crate::threads::on_threads;

/// Converts the logits of a row into log probabilities.
///
/// Uses the precision of llama.cpp's `perplexity` tool: exponentials in single precision, their sum
/// and the rest in double.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogSum {
    /// The highest logit.
    pub max: f32,
    /// Logarithm of the sum of `exp(logit - max)`.
    pub ln_sum: f64,
}

impl LogSum {
    /// Sums a row of logits.
    pub fn of(row: &[f32]) -> Self {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|logit| f64::from((logit - max).exp())).sum();
        Self { max, ln_sum: sum.ln() }
    }

    /// Negative log likelihood of a token with this logit.
    pub fn nll(self, logit: f32) -> f64 {
        self.ln_sum - f64::from(logit - self.max)
    }
}

/// Negative log likelihood of token `target` under one row of logits.
pub fn nll(row: &[f32], target: i32) -> f64 {
    LogSum::of(row).nll(row[target.unsigned_abs() as usize])
}

/// [`nll`] of each row of `vocab` logits with the target at the same index, computed on `threads`
/// threads.
pub fn nlls(rows: &[f32], vocab: usize, targets: &[i32], threads: usize) -> Vec<f64> {
    let mut out = vec![0.0; targets.len()];
    let jobs = out.iter_mut().zip(targets).zip(rows.chunks_exact(vocab)).collect();
    on_threads(threads, jobs, |((out, &target), row)| *out = nll(row, target));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_logarithm_of_the_softmax() {
        let row = [1.0_f32, -2.0, 0.5, 3.25, -30.0];
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for (target, &logit) in (0..).zip(&row) {
            let expected = -(f64::from(logit).exp() / sum).ln();
            assert!((nll(&row, target) - expected).abs() < 1e-6, "{target}");
        }
        // Far outside the range of exponentials.
        assert!((nll(&[1000.0, 999.0], 0) - (1.0 + (-1.0_f64).exp()).ln()).abs() < 1e-6);
    }

    #[test]
    fn threads_share_rows_without_a_trace() {
        let vocab = 7;
        let rows: Vec<f32> = (0..vocab * 11).map(|i| ((i * 37) % 19) as f32 / 3.0).collect();
        let targets: Vec<i32> = (0..11).map(|i| i % 7).collect();
        let expected: Vec<f64> =
            rows.chunks(vocab).zip(&targets).map(|(row, &target)| nll(row, target)).collect();
        for threads in [1, 2, 3, 16] {
            assert_eq!(nlls(&rows, vocab, &targets, threads), expected, "{threads} threads");
        }
        assert!(nlls(&[], vocab, &[], 2).is_empty());
    }
}
