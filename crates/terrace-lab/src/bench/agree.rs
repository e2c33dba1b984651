//! Compares runs: their tokens, or on devices that round, their logits.

use super::child::{Side, first_difference};
use super::error::BenchError;
use terrace_cli::report::RunReport;

/// Agreement of the sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// For each side, `None` if its tokens are those of the first side, or the deviation of its
    /// logits, see [`deviation`].
    pub deviations: Vec<Option<f64>>,
}

impl Agreement {
    /// Returns whether all tokens are the same.
    pub fn is_exact(&self) -> bool {
        self.deviations.iter().all(Option::is_none)
    }

    /// Returns the largest deviation of logits; 0 if all tokens are the same.
    pub fn deviation(&self) -> f64 {
        self.deviations.iter().flatten().copied().fold(0.0, f64::max)
    }
}

/// Compares all runs, warm-ups included. Runs of one side generate the same tokens. Two sides do,
/// or the logits that each has after the prompt, in `logits`, deviate by at most `tolerance`.
/// `logits` has an entry per side, and is empty if no device takes part.
///
/// # Errors
/// [`BenchError::Disagree`], [`BenchError::Deviate`].
pub fn agree(
    sides: &[Side],
    runs: &[Vec<RunReport>],
    logits: &[Vec<f32>],
    tolerance: f64,
) -> Result<Agreement, BenchError> {
    let mut deviations = Vec::new();
    for (index, (side, of_side)) in sides.iter().zip(runs).enumerate() {
        let disagree = |(run, (at, expected, got)), reference: &str| BenchError::Disagree {
            side: side.name.clone(),
            run,
            at,
            expected,
            got,
            reference: reference.to_owned(),
            repacked: sides.iter().any(|side| side.repack == Some(true)),
        };
        let differs = |reference: &[i32]| {
            let all = of_side.iter().enumerate();
            all.filter_map(|(run, report)| Some((run, first_difference(reference, &report.tokens)?))).next()
        };
        if let Some(found) = differs(&of_side[0].tokens) {
            return Err(disagree(found, &side.name));
        }
        let Some(found) = differs(&runs[0][0].tokens) else {
            deviations.push(None);
            continue;
        };
        let (Some(reference), Some(other)) = (logits.first(), logits.get(index)) else {
            return Err(disagree(found, &sides[0].name));
        };
        let deviation = deviation(reference, other);
        if !deviation.is_some_and(|deviation| deviation <= tolerance) {
            return Err(BenchError::Deviate {
                side: side.name.clone(),
                at: found.1.0,
                deviation: deviation.unwrap_or(f64::NAN),
                tolerance,
            });
        }
        deviations.push(deviation);
    }
    Ok(Agreement { deviations })
}

/// Returns the mean squared difference of two rows of logits over the variance of the first: 0 if
/// they are equal, 2 if they have nothing to do with each other. `None` if they cannot be compared.
pub fn deviation(reference: &[f32], other: &[f32]) -> Option<f64> {
    let n = reference.len() as f64;
    let mean = reference.iter().map(|&a| f64::from(a)).sum::<f64>() / n;
    let square = |value: f64| value * value;
    let variance: f64 = reference.iter().map(|&a| square(f64::from(a) - mean)).sum();
    let difference: f64 =
        reference.iter().zip(other).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    let deviation = difference / variance;
    (reference.len() == other.len() && deviation.is_finite()).then_some(deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_shares_of_the_spread() {
        let row: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32 / 100.0).collect();
        assert_eq!(deviation(&row, &row), Some(0.0));
        let shifted: Vec<f32> = row.iter().map(|logit| logit + 0.29).collect();
        // The variance of a uniform distribution over 10 is 100 / 12.
        let found = deviation(&row, &shifted).unwrap();
        assert!((found - 0.29 * 0.29 * 12.0 / 100.0).abs() < 1e-4, "{found}");
        let mut reversed = row.clone();
        reversed.reverse();
        assert!(deviation(&row, &reversed).unwrap() > 0.5);
        assert_eq!(deviation(&row, &row[1..]), None);
        assert_eq!(deviation(&[1.0; 4], &[2.0; 4]), None, "nothing to compare with");
        let mut broken = row.clone();
        broken[3] = f32::NAN;
        assert_eq!(deviation(&row, &broken), None);
    }
}
