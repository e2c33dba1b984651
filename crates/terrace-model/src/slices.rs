//! Slices of a tensor: the matrices of which it consists, one per expert in tensors of experts.

use crate::TensorInfo;
use serde::Serialize;
use std::fmt;

/// Most runs of slices that are named.
const MAX_RUNS: usize = 8;

/// Some of a tensor's slices. Displays as `expert 3 of 8`, `slices 0, 2-5 of 16`, or as `all`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slices {
    /// Their numbers, ascending, each once.
    pub numbers: Vec<u64>,
    /// Number of slices of the tensor.
    pub of: u64,
    /// True if each slice belongs to an expert.
    pub experts: bool,
}

impl Slices {
    /// Names the slices `numbers` of a tensor, which are ascending.
    pub fn of_tensor(tensor: &TensorInfo, numbers: Vec<u64>) -> Self {
        let [_, _, matrices, more] = tensor.shape.0;
        let experts = tensor.name.contains("_exps.");
        Self { numbers, of: matrices.saturating_mul(more), experts }
    }

    /// Returns whether no slice is missing.
    pub fn is_all(&self) -> bool {
        self.numbers.len() as u64 == self.of
    }
}

impl fmt::Display for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &number in &self.numbers {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        let run = |&(first, last): &(u64, u64)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let shown: Vec<String> = runs.iter().take(MAX_RUNS).map(run).collect();
        let noun = if self.experts { "expert" } else { "slice" };
        let plural = if self.numbers.len() == 1 { "" } else { "s" };
        let more = if runs.len() > MAX_RUNS { ", ..." } else { "" };
        write!(f, "{noun}{plural} {}{more} of {}", shown.join(", "), self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_named_in_runs() {
        let shown = |numbers: Vec<u64>, experts| Slices { numbers, of: 40, experts }.to_string();
        assert_eq!(shown(vec![3], true), "expert 3 of 40");
        assert_eq!(shown(vec![0, 2, 3, 4, 9], false), "slices 0, 2-4, 9 of 40");
        assert_eq!(shown((0..40).collect(), true), "all");
        assert_eq!(shown((0..40).step_by(2).collect(), true), "experts 0, 2, 4, 6, 8, 10, 12, 14, ... of 40");
    }
}
