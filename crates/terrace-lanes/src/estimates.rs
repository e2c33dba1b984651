//! Measurements of a lane, for layers of one shape.

use super::balance::Balance;
use super::misses::Misses;
use terrace_ggml::devices::experts::SlotShape;

/// Running estimates of layers with the same matrices on a lane.
pub struct Estimates {
    lane: usize,
    shapes: Vec<SlotShape>,
    /// For graphs of prompts.
    pub prompts: Balance,
    /// For graphs of a few tokens.
    pub tokens: Misses,
}

impl Estimates {
    /// The index among `all` of the estimates for layers with these matrices on a lane, which are added
    /// if there are none.
    pub fn of(all: &mut Vec<Self>, lane: usize, shapes: &[SlotShape]) -> usize {
        let known = all.iter().position(|other| other.lane == lane && other.shapes == shapes);
        known.unwrap_or_else(|| {
            let (prompts, tokens) = (Balance::default(), Misses::default());
            all.push(Self { lane, shapes: shapes.to_vec(), prompts, tokens });
            all.len() - 1
        })
    }
}
