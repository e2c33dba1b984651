//! Drafts from the text itself: what followed its last tokens when they came before.

use super::drafter::{CLASSES, Drafter, Proposal};
use crate::error::EngineError;
use std::time::Instant;

/// Shortest run of tokens that must have come before.
const SHORTEST_RUN: usize = 2;
/// Longest run that is compared.
const LONGEST_RUN: usize = 16;
/// Number of a text's last tokens that are searched: 65,536 comparisons take 0.02 ms.
const BACK: usize = 1 << 16;

/// Proposes what followed the longest run of tokens at the end of the text, the last time that it
/// came before.
pub struct Ngram;

impl Drafter for Ngram {
    fn name(&self) -> String {
        "the text itself".into()
    }

    fn classes(&self) -> usize {
        CLASSES
    }

    fn draft(
        &mut self,
        _sequence: u32,
        tokens: &[i32],
        most: usize,
        drafts: &mut Vec<i32>,
    ) -> Result<Proposal, EngineError> {
        let begun = Instant::now();
        let Some((next, run)) = find(tokens) else { return Ok(Proposal::default()) };
        drafts.extend(tokens[next..].iter().take(most));
        Ok(Proposal { class: class_of(run), cost: begun.elapsed() })
    }
}

/// The place after the longest earlier run of tokens that the text ends with, the last one of several,
/// and the length of the run.
fn find(tokens: &[i32]) -> Option<(usize, usize)> {
    let last = *tokens.last()?;
    let mut best = (0, SHORTEST_RUN - 1);
    for end in (tokens.len().saturating_sub(BACK)..tokens.len() - 1).rev() {
        if tokens[end] != last {
            continue;
        }
        let pairs = tokens[..=end].iter().rev().zip(tokens.iter().rev());
        let run = pairs.take(LONGEST_RUN).take_while(|(a, b)| a == b).count();
        if run > best.1 {
            best = (end + 1, run);
            if run == LONGEST_RUN {
                break;
            }
        }
    }
    (best.1 >= SHORTEST_RUN).then_some(best)
}

/// Certainty of a run of this length.
const fn class_of(run: usize) -> usize {
    match run {
        0..=2 => 0,
        3 => 1,
        4..=7 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(tokens: &[i32], most: usize) -> (Vec<i32>, usize) {
        let mut drafts = Vec::new();
        let proposal = Ngram.draft(0, tokens, most, &mut drafts).unwrap();
        (drafts, proposal.class)
    }

    #[test]
    fn what_followed_the_last_tokens_follows_again() {
        assert_eq!(drafts(&[1, 2, 3, 4, 5, 1, 2], 3), (vec![3, 4, 5], 0));
        assert_eq!(drafts(&[1, 2, 3, 4, 5, 1, 2, 3], 8), (vec![4, 5, 1, 2, 3], 1), "up to the end");
    }

    #[test]
    fn the_longest_run_counts_and_the_last_of_equal_ones() {
        assert_eq!(drafts(&[9, 1, 2, 7, 1, 2, 8, 9, 1, 2], 1), (vec![7], 1));
        assert_eq!(drafts(&[1, 2, 7, 1, 2, 8, 1, 2], 1), (vec![8], 0));
    }

    #[test]
    fn a_single_token_is_no_run() {
        for tokens in [&[][..], &[1], &[1, 1], &[1, 2, 3], &[1, 2, 1]] {
            assert_eq!(drafts(tokens, 4), (Vec::new(), 0), "{tokens:?}");
        }
        assert_eq!(drafts(&[1, 1, 1], 4), (vec![1], 0), "a run may overlap itself");
    }

    /// The plain definition, for the search above.
    fn oracle(tokens: &[i32]) -> Option<(usize, usize)> {
        (SHORTEST_RUN..=LONGEST_RUN.min(tokens.len().saturating_sub(1))).rev().find_map(|run| {
            let end = &tokens[tokens.len() - run..];
            let at = (0..tokens.len() - run).rev().find(|&at| tokens[at..at + run] == *end)?;
            Some((at + run, run))
        })
    }

    proptest::proptest! {
        #[test]
        fn finds_what_the_definition_finds(tokens in proptest::collection::vec(0..4i32, 0..60)) {
            proptest::prop_assert_eq!(find(&tokens), oracle(&tokens));
        }
    }
}
