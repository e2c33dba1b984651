//! How likely tokens are under rows of logits.

/// Negative log likelihood of token `target` under one row of logits, in the precision of llama.cpp's `perplexity`
/// tool: exponentials in single precision, their sum and the rest in double.
pub fn nll(row: &[f32], target: usize) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|logit| f64::from((logit - max).exp())).sum();
    sum.ln() - f64::from(row[target] - max)
}

/// [`nll`] of each row, `vocab` logits long, with the target at the same place; over `threads` threads.
pub fn nlls(rows: &[f32], vocab: usize, targets: &[i32], threads: usize) -> Vec<f64> {
    let mut out = vec![0.0; targets.len()];
    let share = targets.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for ((out, targets), rows) in
            out.chunks_mut(share).zip(targets.chunks(share)).zip(rows.chunks(share * vocab))
        {
            scope.spawn(move || {
                for ((out, &target), row) in out.iter_mut().zip(targets).zip(rows.chunks_exact(vocab)) {
                    *out = nll(row, target.unsigned_abs() as usize);
                }
            });
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_logarithm_of_the_softmax() {
        let row = [1.0_f32, -2.0, 0.5, 3.25, -30.0];
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for (target, &logit) in row.iter().enumerate() {
            let expected = -(f64::from(logit).exp() / sum).ln();
            assert!((nll(&row, target) - expected).abs() < 1e-6, "{target}");
        }
        // Far outside of what exponentials can be taken of.
        assert!((nll(&[1000.0, 999.0], 0) - (1.0 + (-1.0_f64).exp()).ln()).abs() < 1e-6);
    }

    #[test]
    fn threads_share_rows_without_a_trace() {
        let vocab = 7;
        let rows: Vec<f32> = (0..vocab * 11).map(|i| ((i * 37) % 19) as f32 / 3.0).collect();
        let targets: Vec<i32> = (0..11).map(|i| i % 7).collect();
        let expected: Vec<f64> =
            rows.chunks(vocab).zip(&targets).map(|(row, &t)| nll(row, t as usize)).collect();
        for threads in [1, 2, 3, 16] {
            assert_eq!(nlls(&rows, vocab, &targets, threads), expected, "{threads} threads");
        }
        assert!(nlls(&[], vocab, &[], 2).is_empty());
    }
}
