//! The cheapest mix that fits: of each group of tensors one option, so that all bytes are within a budget and the costs, which are
//! taken to add up, are least.
//!
//! A multiple-choice knapsack. The linear program (`lp`) says what is best in fractions, which is a whole mix but for one group;
//! that is rounded down, another one is made greedily, and both are improved by exchanges until nothing is left to gain.

mod exchange;
mod lp;

use std::collections::BTreeSet;

/// One way to store a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixOption {
    /// Its size.
    pub bytes: u64,
    /// What it costs, 0 or more: the divergence that it causes.
    pub cost: f64,
}

/// One option of each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Which, by group.
    pub choice: Vec<usize>,
    /// All of their bytes.
    pub bytes: u64,
    /// The sum of their costs.
    pub cost: f64,
}

/// Why there is no mix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// The smallest options are too large.
    #[error("the smallest mix has {smallest} bytes, more than the {budget} allowed")]
    NoneFits {
        /// Bytes of the smallest mix.
        smallest: u64,
        /// Bytes that were allowed.
        budget: u64,
    },
    /// A group without options.
    #[error("group {0} has no options")]
    NoOptions(usize),
    /// A cost that is no number.
    #[error("option {option} of group {group} has a cost of {cost}")]
    Cost {
        /// Which group.
        group: usize,
        /// Which of its options.
        option: usize,
        /// What it says.
        cost: String,
    },
}

/// Up to `count` mixes within `budget` bytes, the cheapest first; the others differ from it in one or two groups, in case costs
/// do not quite add up.
///
/// # Errors
/// [`MixError`].
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

/// The least cost that any mix within `budget` bytes can have: what the linear program says; `None` if nothing fits.
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

/// The option with the fewest bytes; of such the cheapest.
fn smallest(options: &[MixOption]) -> usize {
    let order = |a: &MixOption, b: &MixOption| a.bytes.cmp(&b.bytes).then(a.cost.total_cmp(&b.cost));
    (0..options.len()).min_by(|&a, &b| order(&options[a], &options[b])).expect("a group has options")
}
