//! Finds the cheapest mix that fits: one option for each group of tensors, so that all bytes are
//! within a budget and the sum of the costs is least. Costs are assumed to add up.
//!
//! This is a multiple-choice knapsack. The linear program (`lp`) finds the best mix in fractions,
//! in which at most one group is split between options. It is rounded down, another mix is made
//! greedily, and both are improved by exchanges until nothing can be gained.

mod exchange;
mod lp;

use std::collections::BTreeSet;

/// One way to store a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixOption {
    /// Size in bytes.
    pub bytes: u64,
    /// Cost, 0 or more: the divergence that it causes.
    pub cost: f64,
}

/// One option for each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Index of the chosen option, by group.
    pub choice: Vec<usize>,
    /// Sum of the sizes in bytes.
    pub bytes: u64,
    /// Sum of the costs.
    pub cost: f64,
}

/// Why there is no mix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// The smallest options together are too large.
    #[error("the smallest mix has {smallest} bytes, more than the {budget} allowed")]
    NoneFits {
        /// Bytes of the smallest mix.
        smallest: u64,
        /// Allowed bytes.
        budget: u64,
    },
    /// A group has no options.
    #[error("group {0} has no options")]
    NoOptions(usize),
    /// A cost is negative or not a finite number.
    #[error("option {option} of group {group} has a cost of {cost}")]
    Cost {
        /// Index of the group.
        group: usize,
        /// Index of the option in the group.
        option: usize,
        cost: String,
    },
}

/// Finds up to `count` mixes within `budget` bytes, the cheapest first. The others differ from it
/// in one or two groups, in case costs do not quite add up.
///
/// # Errors
/// If no mix fits, or the groups are invalid.
pub fn mixes(groups: &[Vec<MixOption>], budget: u64, count: usize) -> Result<Vec<Mix>, MixError> {
    check(groups, budget)?;
    let smallest = Mix::of(groups, (0..groups.len()).map(|group| smallest(&groups[group])).collect());
    let starts =
        [lp::rounded(groups, budget), Some(exchange::greedy(groups, &smallest, budget)), Some(smallest)];
    let mut found: Vec<Mix> =
        starts.into_iter().flatten().map(|choice| exchange::improved(groups, choice, budget)).collect();
    found.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.bytes.cmp(&b.bytes)));
    let others = exchange::neighbours(groups, &found[0], budget);
    found.extend(others);
    found.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.bytes.cmp(&b.bytes)));
    let mut seen = BTreeSet::new();
    found.retain(|mix| seen.insert(mix.choice.clone()));
    found.truncate(count.max(1));
    Ok(found)
}

/// Returns a lower bound of the cost of any mix within `budget` bytes, from the linear program;
/// `None` if nothing fits or the program is too large.
pub fn least_cost(groups: &[Vec<MixOption>], budget: u64) -> Option<f64> {
    check(groups, budget).ok()?;
    lp::least_cost(groups, budget)
}

impl Mix {
    fn of(groups: &[Vec<MixOption>], choice: Vec<usize>) -> Self {
        let chosen = || groups.iter().zip(&choice).map(|(options, &option)| options[option]);
        let (bytes, cost) = (chosen().map(|o| o.bytes).sum(), chosen().map(|o| o.cost).sum());
        Self { choice, bytes, cost }
    }
}

fn check(groups: &[Vec<MixOption>], budget: u64) -> Result<(), MixError> {
    for (group, options) in groups.iter().enumerate() {
        if options.is_empty() {
            return Err(MixError::NoOptions(group));
        }
        let wrong = options.iter().position(|o| !o.cost.is_finite() || o.cost < 0.0);
        if let Some(option) = wrong {
            return Err(MixError::Cost { group, option, cost: options[option].cost.to_string() });
        }
    }
    let smallest = groups.iter().map(|options| options[smallest(options)].bytes).sum();
    if smallest > budget { Err(MixError::NoneFits { smallest, budget }) } else { Ok(()) }
}

/// Returns the option with the fewest bytes, and among equals the cheapest.
fn smallest(options: &[MixOption]) -> usize {
    let order = |a: &MixOption, b: &MixOption| a.bytes.cmp(&b.bytes).then(a.cost.total_cmp(&b.cost));
    (0..options.len()).min_by(|&a, &b| order(&options[a], &options[b])).expect("a group has options")
}
