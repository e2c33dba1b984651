//! State of a sequence whose MTP layers draft: the hidden states that its passes left, and which
//! pairs of a hidden state and the next token were fed.

use super::drafter::Pass;
use crate::prompt_cache::usable::common;

/// A sequence. The pair at a position is the token there and the hidden state of the one before.
#[derive(Debug, Default)]
pub struct MtpText {
    /// All tokens that the model has evaluated, drafts among them.
    tokens: Vec<i32>,
    /// Hidden states of the last of these tokens.
    hidden: Vec<f32>,
    /// The tokens of pairs that were fed, up to `next`.
    fed: Vec<i32>,
    /// Position of the next pair to feed; 0: none can be yet.
    next: usize,
}

impl MtpText {
    /// Position of the next pair to feed.
    pub const fn next(&self) -> usize {
        self.next
    }

    /// Number of hidden states that are kept.
    pub fn rows(&self, width: usize) -> usize {
        self.hidden.len() / width
    }

    /// Position of the first hidden state that is kept.
    fn first(&self, width: usize) -> usize {
        self.tokens.len() - self.rows(width)
    }

    /// The hidden state of the token at a position.
    pub fn row(&self, at: usize, width: usize) -> &[f32] {
        &self.hidden[(at - self.first(width)) * width..][..width]
    }

    /// Returns true if the pairs up to the last of `len` tokens can be fed.
    pub fn reaches(&self, len: usize, width: usize) -> bool {
        let rows = self.first(width)..self.tokens.len();
        len >= 2
            && self.next > 0
            && self.next < len
            && rows.contains(&(self.next - 1))
            && rows.contains(&(len - 2))
    }

    /// Cuts it back to what `tokens` begin with. Returns the position from which on pairs that were fed are
    /// others now, if there are such.
    pub fn cut(&mut self, tokens: &[i32], width: usize) -> Option<usize> {
        let shared = common(&self.tokens, tokens);
        self.truncate(shared, width);
        // A pair was fed with all tokens up to its own.
        let start = self.next - self.fed.len();
        let alike = self.fed.iter().zip(tokens.iter().skip(start)).take_while(|(a, b)| a == b).count();
        let next = (start + alike).min(shared + 1);
        if next >= self.next {
            return None;
        }
        self.fed.truncate(next.saturating_sub(start));
        self.next = next.max(start);
        Some(self.next)
    }

    /// Drops all tokens but the first ones, and their hidden states.
    fn truncate(&mut self, len: usize, width: usize) {
        if len < self.tokens.len() {
            let first = self.first(width);
            self.tokens.truncate(len);
            self.hidden.truncate(len.saturating_sub(first) * width);
        }
    }

    /// Notes that the cache holds no pairs any more.
    pub fn restart(&mut self) {
        self.fed.clear();
        self.next = 0;
    }

    /// Notes that the pairs of these tokens were fed up to position `until`.
    pub fn fed(&mut self, tokens: &[i32], until: usize, width: usize) {
        self.fed.extend_from_slice(&tokens[self.next..until]);
        self.next = until;
        // The next pair needs the hidden state of the token before it; one more is kept, because the
        // last pair is fed again if nothing else is left to feed.
        let unused = (until - 1).saturating_sub(self.first(width) + 1);
        self.hidden.drain(..unused * width);
    }

    /// Adds what a pass left, after the tokens that came before it. Returns whether tokens before have
    /// left no hidden states, so that all pairs that were fed are of no use.
    pub fn add(&mut self, pass: &Pass<'_>, width: usize) -> bool {
        let Pass { tokens, from, hidden, .. } = *pass;
        let rows = hidden.len() / width;
        self.truncate(from, width);
        let follows = self.tokens.len() == from && rows == tokens.len() - from;
        if !follows {
            self.hidden.clear();
        }
        self.tokens.extend_from_slice(&tokens[self.tokens.len()..]);
        self.hidden.extend_from_slice(hidden);
        let gap = !follows || self.next > 0 && self.first(width) >= self.next;
        if gap {
            self.restart();
        }
        if self.next == 0 && rows > 0 {
            self.next = self.first(width) + 1;
        }
        gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass over the tokens from `from` on, that leaves hidden states of the last `rows`: one value
    /// each, the token.
    fn pass(text: &mut MtpText, tokens: &[i32], from: usize, rows: usize) -> bool {
        let hidden: Vec<f32> = tokens[tokens.len() - rows..].iter().map(|&token| token as f32).collect();
        text.cut(tokens, 1);
        text.add(&Pass { sequence: 0, tokens, from, hidden: &hidden }, 1)
    }

    #[test]
    fn pairs_are_fed_in_order() {
        let mut text = MtpText::default();
        pass(&mut text, &[5, 6, 7], 0, 3);
        assert_eq!(text.next(), 1);
        assert!(text.reaches(4, 1) && !text.reaches(5, 1));
        assert_eq!((text.row(0, 1), text.row(2, 1)), (&[5.0][..], &[7.0][..]));
        text.fed(&[5, 6, 7, 8], 3, 1);
        assert_eq!((text.next(), text.rows(1)), (3, 2));
        assert!(text.reaches(4, 1));
        // 8, and two drafts of which the first is right.
        assert!(!pass(&mut text, &[5, 6, 7, 8, 9, 10], 3, 3));
        assert_eq!(text.cut(&[5, 6, 7, 8, 9, 11], 1), None);
        assert!(text.reaches(6, 1) && !text.reaches(7, 1));
        text.fed(&[5, 6, 7, 8, 9, 11], 5, 1);
        assert_eq!((text.next(), text.row(4, 1)), (5, &[9.0][..]));
    }

    #[test]
    fn what_was_fed_of_another_text_is_cut() {
        let mut text = MtpText::default();
        pass(&mut text, &[5, 6, 7, 8, 9], 0, 5);
        text.fed(&[5, 6, 7, 8, 9], 5, 1);
        // The pair of 8 follows 7, the one of 4 does as well.
        assert_eq!(text.cut(&[5, 6, 7, 4], 1), Some(3));
        assert_eq!(text.next(), 3);
        assert!(!text.reaches(4, 1), "its hidden state is gone");
        assert_eq!(text.cut(&[1], 1), Some(1));
        assert!(!pass(&mut text, &[1, 2], 0, 2), "a pass from the first token on");
        assert!(text.reaches(3, 1));
    }

    #[test]
    fn a_gap_begins_anew() {
        let mut text = MtpText::default();
        assert!(pass(&mut text, &[5, 6, 7], 0, 1), "of a prompt, the last token left its state");
        assert!(text.next() == 3 && text.reaches(4, 1));
        text.fed(&[5, 6, 7, 8], 4, 1);
        assert!(!pass(&mut text, &[5, 6, 7, 8], 3, 1));
        assert!(pass(&mut text, &[5, 6, 7, 8, 1, 2, 3], 4, 1));
        assert_eq!((text.next(), text.rows(1)), (7, 1));
        assert!(pass(&mut text, &[5, 6, 7, 8, 1, 2, 3, 4, 5, 6], 9, 1), "two were evaluated unseen");
        assert_eq!(text.next(), 10);
    }
}
