//! The order of a measurement's requests.

use serde::Serialize;
use std::fmt;

/// The order of a measurement's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// In file order.
    Sequential,
    /// Far apart, and no place again before all others were read.
    Scattered,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sequential => "sequential",
            Self::Scattered => "scattered",
        })
    }
}

/// The offsets of requests: groups of `adjacent` requests, with the groups in the pattern's order.
#[derive(Debug)]
pub(super) struct Offsets {
    request: u64,
    adjacent: u64,
    groups: u64,
    stride: u64,
    group: u64,
    within: u64,
    /// Number of requests left in the pass.
    left: u64,
    /// True if to end after one pass; otherwise it is repeated.
    once: bool,
}

impl Offsets {
    /// Makes the offsets for a file of `len` bytes; none if not even one group fits.
    pub fn new(pattern: Pattern, len: u64, request: u64, adjacent: u64, once: bool) -> Self {
        let groups = len / (request * adjacent);
        let stride = match pattern {
            Pattern::Sequential => 1,
            Pattern::Scattered => scatter(groups),
        };
        Self { request, adjacent, groups, stride, group: 0, within: 0, left: groups * adjacent, once }
    }
}

impl Iterator for Offsets {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            if self.once || self.groups == 0 {
                return None;
            }
            self.left = self.groups * self.adjacent;
        }
        self.left -= 1;
        let offset = (self.group * self.adjacent + self.within) * self.request;
        self.within += 1;
        if self.within == self.adjacent {
            self.within = 0;
            self.group = (self.group + self.stride) % self.groups;
        }
        Some(offset)
    }
}

/// Returns a step that visits all of `0..groups` with consecutive ones far apart: near the golden
/// section, and without a common divisor.
fn scatter(groups: u64) -> u64 {
    // The step only has to be near, so floating point is exact enough.
    let near = (groups as f64 * 0.618_034) as u64;
    (near.max(1)..).find(|step| gcd(*step, groups) == 1).unwrap_or(1)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_its_turn_once() {
        for pattern in [Pattern::Sequential, Pattern::Scattered] {
            for (groups, adjacent) in [(1, 1), (2, 3), (7, 1), (64, 4), (1000, 1), (1457, 2)] {
                let len = groups * adjacent * 4096 + 100;
                let all: Vec<u64> = Offsets::new(pattern, len, 4096, adjacent, true).collect();
                let mut sorted = all.clone();
                sorted.sort_unstable();
                let expected: Vec<u64> = (0..groups * adjacent).map(|i| i * 4096).collect();
                assert_eq!(sorted, expected, "{pattern} {groups} {adjacent}");
                // Without `once` the pass is repeated.
                let twice: Vec<u64> =
                    Offsets::new(pattern, len, 4096, adjacent, false).take(2 * all.len()).collect();
                assert_eq!(&twice[all.len()..], all, "{pattern} {groups} {adjacent}");
            }
        }
    }

    #[test]
    fn scattered_groups_are_apart_and_their_members_are_not() {
        let all: Vec<u64> = Offsets::new(Pattern::Scattered, 1000 << 20, 1 << 20, 2, true).collect();
        for (index, pair) in all.windows(2).enumerate() {
            let distance = pair[0].abs_diff(pair[1]);
            if index % 2 == 0 {
                assert_eq!(distance, 1 << 20);
            } else {
                assert!(distance > 100 << 20, "{distance}");
            }
        }
    }

    #[test]
    fn nothing_fits_a_short_file() {
        assert_eq!(Offsets::new(Pattern::Scattered, 4095, 4096, 1, false).next(), None);
        assert_eq!(Offsets::new(Pattern::Sequential, 8191, 4096, 2, true).next(), None);
    }
}
