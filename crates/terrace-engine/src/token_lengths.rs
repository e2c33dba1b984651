//! Bounds of the number of a text's tokens by its length.

use terrace_ggml::llama::{Vocab, is_space};

/// The lengths of a vocabulary's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLengths {
    longest: usize,
    /// True if a text's tokens cover it.
    cover: bool,
}

impl TokenLengths {
    /// Those of a vocabulary. Looks at each token.
    pub fn of(vocab: Vocab<'_>) -> Self {
        Self { longest: vocab.longest_token(), cover: vocab.covers_texts() }
    }

    /// The longest text of a token, in bytes.
    pub const fn longest(self) -> usize {
        self.longest
    }

    /// A number of tokens that a text has at least. White space does not count: some tokens take as
    /// much of it as there is.
    pub fn least(self, text: &str) -> usize {
        if !self.cover || self.longest == 0 {
            return 0;
        }
        let solid = text.bytes().filter(|byte| !is_space(*byte)).count();
        solid.div_ceil(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_covers_so_much() {
        let lengths = TokenLengths { longest: 4, cover: true };
        for (text, least) in [("", 0), (" \n\t ", 0), ("abcd", 1), ("abcd e", 2), ("\u{1f33e}\u{1f33e}x", 3)]
        {
            assert_eq!(lengths.least(text), least, "{text:?}");
        }
        assert_eq!(TokenLengths { cover: false, ..lengths }.least("abcdefgh"), 0);
    }
}
