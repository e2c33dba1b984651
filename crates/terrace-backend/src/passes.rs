//! Properties of passes that only their caller knows: what a pass is for, and whose bits its tokens get, those of
//! the pass as ggml computes it or of passes of their own.

use std::ops::Range;
use std::sync::Arc;

/// Purpose of a pass. The number of its tokens does not tell: a prompt may have few, its last layer
/// computes one, and drafts make several of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassKind {
    /// Tokens of prompts, and other texts that are given.
    Prefill,
    /// The tokens that were chosen last, one of each sequence.
    Decode,
    /// A chosen token, and drafts after it.
    DraftCheck,
}

impl PassKind {
    /// Returns true if its tokens belong to a prompt.
    pub const fn is_prefill(self) -> bool {
        matches!(self, Self::Prefill)
    }
}

/// Whose bits the tokens of a pass get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Passes {
    /// The pass is computed as ggml does.
    #[default]
    One,
    /// Each of so many tokens gets the bits of a pass of its own. A pass of one token is learned from.
    Tokens(usize),
    /// Each of several sequences gets the bits of a pass of its own tokens.
    Prompts(Arc<Prompts>),
}

/// The tokens of an MoE block.
#[derive(Debug, PartialEq, Eq)]
pub struct BlockTokens {
    /// True if each gets the bits that it has alone.
    pub alone: bool,
    /// The prompts that they are of, if each prompt gets the bits of a pass of its own.
    pub prompts: Option<Arc<Prompts>>,
}

impl Passes {
    /// Kind of an MoE block of this many tokens in such a pass; `None` if it cannot be told.
    pub fn in_block(&self, tokens: usize) -> Option<BlockTokens> {
        let of = |alone, prompts| Some(BlockTokens { alone, prompts });
        match self {
            Self::One => of(false, None),
            Self::Tokens(tokens) => of(*tokens > 1, None),
            Self::Prompts(prompts) if tokens == prompts.tokens() => of(false, Some(Arc::clone(prompts))),
            // Their last tokens, which are chosen from.
            Self::Prompts(prompts) if tokens == prompts.sequences() => of(true, None),
            Self::Prompts(_) => None,
        }
    }

    /// Returns true if a token of a graph of so many is needed: not one that fills up a prompt.
    pub fn needs(&self, tokens: usize, token: usize) -> bool {
        match self {
            Self::One | Self::Tokens(_) => true,
            Self::Prompts(prompts) => tokens != prompts.tokens() || prompts.is_own(token),
        }
    }
}

/// The ends of prompts of several sequences with caches of their own. llama.cpp puts as many tokens of each
/// sequence into a graph, in the order of the sequences: behind its own tokens, a sequence has others that
/// nobody needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Prompts {
    own: Vec<usize>,
    each: usize,
}

impl Prompts {
    /// Sequences with these numbers of own tokens, of which the last one leaves logits.
    ///
    /// # Panics
    /// If these are not several sequences of several tokens: a lone token has other kernels.
    pub fn new(own: Vec<usize>) -> Self {
        assert!(own.len() > 1 && own.iter().all(|&own| own > 1), "several sequences of several tokens");
        let each = own.iter().copied().max().unwrap_or_default();
        Self { own, each }
    }

    /// Number of sequences.
    pub const fn sequences(&self) -> usize {
        self.own.len()
    }

    /// Tokens of each sequence in the graph.
    pub const fn each(&self) -> usize {
        self.each
    }

    /// Tokens of the graph.
    pub const fn tokens(&self) -> usize {
        self.each * self.own.len()
    }

    /// The sequence of a token of the graph.
    pub const fn sequence(&self, token: usize) -> usize {
        token / self.each
    }

    /// Returns true if a token of the graph is one of its sequence's own.
    pub fn is_own(&self, token: usize) -> bool {
        token % self.each < self.own[self.sequence(token)]
    }

    /// The tokens that nobody needs.
    pub fn others(&self) -> impl Iterator<Item = Range<usize>> {
        let other = |(sequence, &own): (usize, &usize)| {
            let first = sequence * self.each;
            first + own..first + self.each
        };
        self.own.iter().enumerate().map(other).filter(|others| !others.is_empty())
    }

    /// The tokens of the graph, divided into each sequence's own ones and the others.
    pub fn parts(&self) -> Vec<Range<usize>> {
        let own = |(sequence, &own): (usize, &usize)| sequence * self.each..sequence * self.each + own;
        let mut parts: Vec<_> = self.own.iter().enumerate().map(own).chain(self.others()).collect();
        parts.sort_by_key(|part| part.start);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_filled_up_to_the_longest() {
        let prompts = Prompts::new(vec![3, 5, 2]);
        assert_eq!((prompts.sequences(), prompts.each(), prompts.tokens()), (3, 5, 15));
        assert_eq!(prompts.parts(), [0..3, 3..5, 5..10, 10..12, 12..15]);
        let own: Vec<usize> = (0..15).filter(|&token| prompts.is_own(token)).collect();
        assert_eq!(own, [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(prompts.others().collect::<Vec<_>>(), [3..5, 12..15]);
        assert_eq!([4, 5, 14].map(|token| prompts.sequence(token)), [0, 1, 2]);
    }

    #[test]
    fn blocks_are_of_all_tokens_or_of_the_last_ones() {
        let prompts = Arc::new(Prompts::new(vec![3, 5]));
        let passes = Passes::Prompts(Arc::clone(&prompts));
        let whole = BlockTokens { alone: false, prompts: Some(prompts) };
        assert_eq!(passes.in_block(10), Some(whole));
        assert_eq!(passes.in_block(2), Some(BlockTokens { alone: true, prompts: None }));
        assert_eq!(passes.in_block(7), None);
        assert_eq!([2, 3].map(|token| passes.needs(10, token)), [true, false]);
        // The last ones are all needed.
        assert!(passes.needs(2, 1) && Passes::One.needs(10, 3));
        let alone = |passes: Passes| passes.in_block(4).map(|block| block.alone);
        let all = [Passes::One, Passes::Tokens(1), Passes::Tokens(4)].map(alone);
        assert_eq!(all, [Some(false), Some(false), Some(true)]);
    }
}
