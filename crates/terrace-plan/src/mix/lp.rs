//! The mix as a linear program: a share of each option, with the shares of a group summing to 1.

use super::{Mix, MixOption};
use good_lp::solvers::microlp::microlp;
use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, variable};

/// With more options than this the solver would take long; mixes are then made by exchanges alone.
const MOST_OPTIONS: usize = 2000;

/// Solves for the best mix in fractions, and rounds it to a mix that fits; `None` if the program is
/// too large.
pub fn rounded(groups: &[Vec<MixOption>], budget: u64) -> Option<Mix> {
    let (shares, _) = solve(groups, budget)?;
    let choice = groups.iter().zip(&shares).map(|(options, shares)| {
        // If two options share the group, the smaller one is taken: the larger one may not fit.
        let taken = (0..options.len()).filter(|&option| shares[option] > 1e-6);
        taken.min_by_key(|&option| options[option].bytes).unwrap_or_else(|| super::smallest(options))
    });
    let mix = Mix::of(groups, choice.collect());
    // A tiny share may have been rounded to zero.
    (mix.bytes <= budget).then_some(mix)
}

/// Returns the cost of the best mix in fractions.
pub fn least_cost(groups: &[Vec<MixOption>], budget: u64) -> Option<f64> {
    solve(groups, budget).map(|(_, cost)| cost)
}

fn solve(groups: &[Vec<MixOption>], budget: u64) -> Option<(Vec<Vec<f64>>, f64)> {
    let options = || groups.iter().flatten();
    if options().count() > MOST_OPTIONS {
        return None;
    }
    // Costs and bytes are scaled to be near 1.
    let dearest = options().map(|o| o.cost).fold(f64::MIN_POSITIVE, f64::max);
    let budget = budget.max(1) as f64;
    let mut variables = ProblemVariables::new();
    let shares: Vec<Vec<Variable>> = groups
        .iter()
        .map(|options| options.iter().map(|_| variables.add(variable().min(0.0))).collect())
        .collect();
    let sum = |of: &dyn Fn(&MixOption) -> f64| {
        let mut sum = Expression::from(0.0);
        for (options, shares) in groups.iter().zip(&shares) {
            for (option, &share) in options.iter().zip(shares) {
                sum.add_mul(of(option), share);
            }
        }
        sum
    };
    let cost = sum(&|option| option.cost / dearest);
    let bytes = sum(&|option| option.bytes as f64 / budget);
    let mut model = variables.minimise(cost.clone()).using(microlp);
    for shares in &shares {
        model = model.with(constraint!(shares.iter().copied().sum::<Expression>() == 1.0));
    }
    let solution = model.with(constraint!(bytes <= 1.0)).solve().ok()?;
    let values = shares.iter().map(|shares| shares.iter().map(|&share| solution.value(share)).collect());
    Some((values.collect(), solution.eval(&cost) * dearest))
}
