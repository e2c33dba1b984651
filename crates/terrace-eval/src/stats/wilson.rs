//! Confidence intervals of shares.

/// Standard deviations that hold 95 % of a normal distribution.
const Z: f64 = 1.959_963_984_54;

/// The Wilson score interval (lower, upper) of a share of `n` trials, with 95 % confidence.
pub fn wilson(share: f64, n: f64) -> (f64, f64) {
    let z = Z * Z / n;
    let half = (z * share * (1.0 - share) + z * z / 4.0).sqrt();
    let middle = share + z / 2.0;
    ((middle - half) / (1.0 + z), (middle + half) / (1.0 + z))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval contains the shares whose own spread reaches the observed one: both ends solve
    /// `(p - share)^2 = Z^2 p (1 - p) / n`.
    #[test]
    fn its_ends_are_just_as_far_as_they_may_be() {
        for (correct, n) in [(0.0, 1.0), (1.0, 1.0), (3.0, 10.0), (80.0, 400.0), (400.0, 400.0)] {
            let share: f64 = correct / n;
            let (low, high) = wilson(share, n);
            assert!(low <= share + 1e-12 && share <= high + 1e-12, "{low} {share} {high}");
            for end in [low, high] {
                let (distance, reach) = ((end - share).powi(2), Z * Z * end * (1.0 - end) / n);
                assert!((distance - reach).abs() < 1e-9, "{end}: {distance} and {reach}");
            }
        }
        // One right answer out of one.
        assert!((wilson(1.0, 1.0).0 - 0.206_549).abs() < 1e-6);
    }
}
