//! Choosing settings by measurements.

use terrace_model::ByteSize;

/// The rate of one combination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Bytes per request.
    pub request_size: ByteSize,
    /// Requests in flight.
    pub queue_depth: u32,
    /// 10^9 bytes per second.
    pub gbps: f64,
}

impl Sample {
    fn in_flight(&self) -> u128 {
        u128::from(self.request_size.0) * u128::from(self.queue_depth)
    }
}

/// Chooses among the combinations within `slack` (a share, such as 0.03) of the fastest. It is
/// `favourite` (request size and depth) if that is one of them, so that repeated measurements do
/// not change the result by noise. Otherwise it is the one with the fewest bytes in flight, because
/// each request then arrives soonest, and among equals the one with the largest requests, because
/// they cost the least processor time. `None` if nothing was read.
pub(crate) fn choose(samples: &[Sample], favourite: (ByteSize, u32), slack: f64) -> Option<Sample> {
    let valid = || samples.iter().filter(|sample| sample.gbps.is_finite() && sample.gbps > 0.0);
    let best = valid().map(|sample| sample.gbps).max_by(f64::total_cmp)?;
    let near = || valid().filter(|sample| sample.gbps >= best * (1.0 - slack));
    let is_favourite = |sample: &&Sample| (sample.request_size, sample.queue_depth) == favourite;
    let least = || near().min_by_key(|sample| (sample.in_flight(), std::cmp::Reverse(sample.request_size)));
    near().find(is_favourite).or_else(least).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAVOURITE: (ByteSize, u32) = (ByteSize::mib(1), 32);

    fn sample(kib: u64, queue_depth: u32, gbps: f64) -> Sample {
        Sample { request_size: ByteSize::kib(kib), queue_depth, gbps }
    }

    #[test]
    fn the_favourite_stays_while_nothing_is_clearly_faster() {
        let samples = [sample(256, 32, 2.02), sample(1024, 32, 2.0), sample(1024, 8, 1.99)];
        assert_eq!(choose(&samples, FAVOURITE, 0.03), Some(samples[1]));
        let samples = [sample(256, 32, 2.1), sample(1024, 32, 2.0), sample(1024, 8, 1.99)];
        assert_eq!(choose(&samples, FAVOURITE, 0.03), Some(samples[0]));
    }

    #[test]
    fn among_equals_the_fewest_bytes_in_flight_win_then_the_larger_requests() {
        let samples =
            [sample(1024, 64, 3.0), sample(4096, 8, 2.98), sample(256, 32, 2.95), sample(1024, 8, 2.95)];
        assert_eq!(choose(&samples, FAVOURITE, 0.03), Some(samples[3]));
        assert_eq!(choose(&samples[..3], FAVOURITE, 0.03), Some(samples[2]));
        assert_eq!(choose(&samples, FAVOURITE, 0.0), Some(samples[0]));
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(choose(&[], FAVOURITE, 0.03), None);
        let none = [sample(1024, 32, 0.0), sample(4, 1, f64::NAN), sample(4, 2, f64::INFINITY)];
        assert_eq!(choose(&none, FAVOURITE, 0.03), None);
    }

    proptest! {
        #[test]
        fn the_choice_is_measured_and_near_the_best(
            rates in prop::collection::vec((2u32..13, 0u32..7, 0.01f64..10.0), 1..40),
            slack in 0.0f64..0.2,
        ) {
            let samples: Vec<_> =
                rates.iter().map(|(size, depth, gbps)| sample(1 << size, 1 << depth, *gbps)).collect();
            let chosen = choose(&samples, FAVOURITE, slack).unwrap();
            prop_assert!(samples.contains(&chosen));
            let best = samples.iter().map(|s| s.gbps).fold(0.0, f64::max);
            prop_assert!(chosen.gbps >= best * (1.0 - slack));
        }
    }
}
