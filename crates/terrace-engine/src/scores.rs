//! Memory for the logits of a prompt's own tokens: a row for each token of a graph, twice, as llama.cpp
//! computes them and where it keeps them.

use crate::engine::Engine;
use terrace_model::ByteSize;

/// The share of the budget for weights that these logits may take.
const SHARE: u64 = 16;
/// Least and most bytes for them.
const MIN_BYTES: ByteSize = ByteSize::mib(64);
const MAX_BYTES: ByteSize = ByteSize::gib(1);

/// Number of rows that fit, of `vocabulary` logits each: at most as many as a graph has tokens, which nearly
/// always do.
fn rows(vocabulary: usize, budget: ByteSize, ubatch: usize) -> usize {
    let room = ByteSize(budget.bytes() / SHARE).clamp(MIN_BYTES, MAX_BYTES);
    let fit = room.bytes() / size(vocabulary, 1).bytes().max(1);
    usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, ubatch.max(1))
}

/// The size of as many rows.
fn size(vocabulary: usize, rows: usize) -> ByteSize {
    ByteSize(2 * (vocabulary * rows * size_of::<f32>()) as u64)
}

impl Engine {
    /// Number of tokens of a graph of which each leaves logits. Makes room for these with the first call:
    /// slots of an automatic budget give it up.
    pub(crate) fn prepare_scores(&mut self) -> usize {
        let budget = self.plan().placement.as_ref().map_or(ByteSize::ZERO, |plan| plan.budget);
        let vocabulary = self.vocabulary();
        let rows = rows(vocabulary, budget, self.plan().ubatch as usize);
        self.reserve_scores(size(vocabulary, rows), rows);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_bounded_by_a_share_of_the_budget() {
        // A large vocabulary: 1.2 MB for each token.
        let large = |gib| rows(151_936, ByteSize::gib(gib), 2048);
        assert_eq!([0, 1, 4, 1000].map(large), [55, 55, 220, 883]);
        assert_eq!(rows(32_000, ByteSize::gib(8), 512), 512);
        assert_eq!(rows(1 << 30, ByteSize::ZERO, 512), 1);
        assert!(size(151_936, large(4)) <= ByteSize::mib(256));
    }
}
