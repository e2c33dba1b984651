//! Probabilities of tokens, beside the text that clients get: not all that a model writes is content. Fences of
//! JSON, tags of calls and thoughts are taken off, and clients put the content together of its tokens.

use std::collections::VecDeque;
use terrace_engine::TokenProbs;

/// Tokens whose text is still to come.
#[derive(Debug, Default)]
pub struct Aligned {
    tokens: VecDeque<TokenProbs>,
    /// Their bytes, without those of the first one that are gone.
    bytes: Vec<u8>,
    /// Number of bytes of the first token that are gone.
    gone: usize,
    /// True if some of those were content, which has the first token's probability.
    given: bool,
}

impl Aligned {
    /// Adds tokens that were written.
    pub fn push(&mut self, tokens: Vec<TokenProbs>) {
        self.bytes.extend(tokens.iter().flat_map(|one| &one.token.bytes));
        self.tokens.extend(tokens);
    }

    /// The tokens of the next piece of content. Parts of tokens are tokens of their own, of which the first one
    /// has the probability. If the piece is not what was written, all tokens are those of it.
    pub fn content(&mut self, text: &str) -> Vec<TokenProbs> {
        let Some(at) = self.find(text) else {
            self.bytes.clear();
            (self.gone, self.given) = (0, false);
            return self.tokens.drain(..).collect();
        };
        self.take(at);
        let pieces = self.take(text.len());
        self.given = self.gone > 0 && (self.given || !pieces.is_empty());
        pieces
    }

    /// Leaves out the tokens of thoughts.
    pub fn thought(&mut self, text: &str) {
        if let Some(at) = self.find(text) {
            self.take(at + text.len());
        }
    }

    fn find(&self, text: &str) -> Option<usize> {
        match text.len() {
            0 => Some(0),
            length => self.bytes.windows(length).position(|window| window == text.as_bytes()),
        }
    }

    /// Takes this many bytes, and returns the tokens that they are of.
    fn take(&mut self, mut count: usize) -> Vec<TokenProbs> {
        self.bytes.drain(..count);
        let mut pieces = Vec::new();
        while count > 0 {
            let Some(first) = self.tokens.front() else { return pieces };
            let left = first.token.bytes.len() - self.gone;
            let now = left.min(count);
            if now > 0 {
                let mut piece = first.clone();
                piece.token.bytes = piece.token.bytes[self.gone..self.gone + now].to_vec();
                if self.given {
                    piece.token.log = 0.0;
                }
                pieces.push(piece);
            }
            self.gone += now;
            count -= now;
            if self.gone == first.token.bytes.len() {
                self.tokens.pop_front();
                (self.gone, self.given) = (0, false);
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_engine::TokenProb;

    fn written(tokens: &[&str]) -> Aligned {
        let one = |text: &&str| {
            let token = TokenProb { token: 1, bytes: text.as_bytes().to_vec(), log: -1.0 };
            TokenProbs { token, top: Vec::new() }
        };
        let mut aligned = Aligned::default();
        aligned.push(tokens.iter().map(one).collect());
        aligned
    }

    fn texts(tokens: &[TokenProbs]) -> Vec<(String, f32)> {
        let one = |one: &TokenProbs| (String::from_utf8(one.token.bytes.clone()).unwrap(), one.token.log);
        tokens.iter().map(one).collect()
    }

    fn pieces(all: &[(&str, f32)]) -> Vec<(String, f32)> {
        all.iter().map(|(text, log)| ((*text).to_owned(), *log)).collect()
    }

    #[test]
    fn fences_and_thoughts_have_no_tokens() {
        let mut all =
            written(&["<think>", "\n{", "}\n</think>", "", "```json\n", "{\"a", "\": 1", "}\n", "```"]);
        all.thought("{}");
        assert_eq!(
            texts(&all.content("{\"a\": 1}")),
            pieces(&[("{\"a", -1.0), ("\": 1", -1.0), ("}", -1.0)])
        );
        assert_eq!(texts(&all.content("")), []);
    }

    #[test]
    fn the_parts_of_a_token_have_its_probability_once() {
        let mut all = written(&["ab", "c"]);
        assert_eq!(texts(&all.content("a")), pieces(&[("a", -1.0)]));
        assert_eq!(texts(&all.content("bc")), pieces(&[("b", 0.0), ("c", -1.0)]));
        let mut all = written(&[" ab", "c"]);
        assert_eq!(texts(&all.content("a")), pieces(&[("a", -1.0)]));
        assert_eq!(texts(&all.content("bc")), pieces(&[("b", 0.0), ("c", -1.0)]));
    }

    #[test]
    fn what_was_not_written_so_has_all_tokens() {
        let mut all = written(&["x", "y"]);
        assert_eq!(texts(&all.content("z")).len(), 2);
        assert_eq!(texts(&all.content("z")).len(), 0);
    }
}
