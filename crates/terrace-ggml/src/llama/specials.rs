//! Special tokens in a text: cuts it at them as llama.cpp does, in time that grows with the text.
//!
//! llama.cpp looks for one special token after another, longest first, in what is left of the text,
//! and keeps the parts in a list that it walks from the start for each of them. Here one pass finds
//! which special tokens there are at all, and each of them is then looked for once, in the whole
//! text, where a map of its bytes says what is left.

use super::ctype::is_space;
use aho_corasick::{AhoCorasick, MatchKind};
use llama_cpp_sys_2 as sys;
use memchr::memmem;
use std::ops::Range;

unsafe extern "C" {
    /// `special_order.cpp`.
    fn terrace_sort_specials(ids: *mut i32, n: usize, lengths: *const usize);
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextPiece {
    /// A special token.
    Token(i32),
    /// Bytes without special tokens, never next to others.
    Text(Range<usize>),
}

impl TextPiece {
    /// Its part of the text; of a token it is empty. `None` means that it begins or ends within a
    /// character.
    pub(super) fn text_of<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Token(_) => Some(""),
            Self::Text(range) => text.get(range.clone()),
        }
    }
}

/// A vocabulary's special tokens.
#[derive(Debug)]
pub(super) struct Specials {
    /// In the order in which they are looked for.
    all: Vec<Special>,
    /// Finds all of them; patterns have their index in `all`. `None` means that there are none, or
    /// too many.
    finder: Option<AhoCorasick>,
}

#[derive(Debug)]
struct Special {
    id: i32,
    text: Box<[u8]>,
    /// Control and unknown tokens count only where special tokens are to be parsed.
    control: bool,
    /// White space on its left, or right, goes with it.
    left: bool,
    right: bool,
}

impl Specials {
    /// Those among the `count` tokens of a vocabulary, by their attributes (`llama_token_attr`) and texts.
    pub(super) fn of<'v>(
        count: i32,
        attributes: impl Fn(i32) -> i32,
        text: impl Fn(i32) -> &'v [u8],
    ) -> Self {
        let has = |attributes: i32, wanted: sys::llama_token_attr| attributes & wanted as i32 != 0;
        let special = sys::LLAMA_TOKEN_ATTR_CONTROL
            | sys::LLAMA_TOKEN_ATTR_USER_DEFINED
            | sys::LLAMA_TOKEN_ATTR_UNKNOWN;
        let mut ids: Vec<i32> = (0..count).filter(|&id| has(attributes(id), special)).collect();
        let lengths: Vec<usize> = (0..count).map(|id| text(id).len()).collect();
        // SAFETY: `ids` has that many elements, and there is a length for each id.
        unsafe { terrace_sort_specials(ids.as_mut_ptr(), ids.len(), lengths.as_ptr()) };
        let control = sys::LLAMA_TOKEN_ATTR_CONTROL | sys::LLAMA_TOKEN_ATTR_UNKNOWN;
        let special = |id| Special {
            id,
            text: text(id).into(),
            control: has(attributes(id), control),
            left: has(attributes(id), sys::LLAMA_TOKEN_ATTR_LSTRIP),
            right: has(attributes(id), sys::LLAMA_TOKEN_ATTR_RSTRIP),
        };
        // llama.cpp gives tokens without a text one.
        Self::new(ids.into_iter().map(special).filter(|special| !special.text.is_empty()).collect())
    }

    fn new(all: Vec<Special>) -> Self {
        let texts = all.iter().map(|special| &special.text);
        let finder = AhoCorasick::builder().match_kind(MatchKind::Standard).build(texts);
        let finder = finder.inspect_err(|error| tracing::debug!("special tokens: {error}")).ok();
        Self { finder: finder.filter(|_| !all.is_empty()), all }
    }

    /// Cuts a text at its special tokens. `None` means that there are `few` or fewer, or that they
    /// cannot be looked for: llama.cpp does it.
    pub(super) fn cut(&self, text: &str, parse_special: bool, few: usize) -> Option<Vec<TextPiece>> {
        let bytes = text.as_bytes();
        let mut present = vec![false; self.all.len()];
        let mut count = 0;
        for found in self.finder.as_ref()?.find_overlapping_iter(bytes) {
            let index = found.pattern().as_usize();
            if parse_special || !self.all[index].control {
                present[index] = true;
                count += 1;
            }
        }
        if count <= few {
            return None;
        }
        let mut taken = vec![false; bytes.len()];
        let mut tokens = Vec::new();
        for (special, _) in self.all.iter().zip(present).filter(|(_, present)| *present) {
            special.take(bytes, &mut taken, &mut tokens);
        }
        tokens.sort_unstable_by_key(|(at, _)| *at);
        Some(parts(&taken, &tokens))
    }
}

impl Special {
    /// Takes all that are left of it, from left to right, and notes where they begin.
    fn take(&self, bytes: &[u8], taken: &mut [bool], tokens: &mut Vec<(usize, i32)>) {
        let finder = memmem::Finder::new(&self.text);
        let mut at = 0;
        loop {
            at += taken[at..].iter().take_while(|&&taken| taken).count();
            let Some(found) = finder.find(&bytes[at..]) else { return };
            let begin = at + found;
            let mut end = begin + self.text.len();
            // What was taken before is at least as long, so it covers one of the ends.
            if taken[begin] || taken[end - 1] {
                at = begin + 1;
                continue;
            }
            taken[begin..end].fill(true);
            tokens.push((begin, self.id));
            let mut left = begin;
            while self.left && left > 0 && !taken[left - 1] && is_space(bytes[left - 1]) {
                left -= 1;
                taken[left] = true;
            }
            while self.right && end < bytes.len() && !taken[end] && is_space(bytes[end]) {
                taken[end] = true;
                end += 1;
            }
            at = end;
        }
    }
}

/// The tokens, and the bytes between them that nothing has taken.
fn parts(taken: &[bool], tokens: &[(usize, i32)]) -> Vec<TextPiece> {
    let mut parts = Vec::new();
    let mut tokens = tokens.iter().peekable();
    let mut at = 0;
    while at < taken.len() {
        if taken[at] {
            if let Some((_, id)) = tokens.next_if(|(begin, _)| *begin == at) {
                parts.push(TextPiece::Token(*id));
            }
            at += 1;
        } else {
            let end = at + taken[at..].iter().take_while(|&&taken| !taken).count();
            parts.push(TextPiece::Text(at..end));
            at = end;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn special(id: i32, text: &str) -> Special {
        Special { id, text: text.as_bytes().into(), control: true, left: false, right: false }
    }

    #[test]
    fn longer_tokens_go_first_and_white_space_goes_with_those_that_want_it() {
        let all = vec![
            Special { right: true, ..special(7, "<end>") },
            Special { left: true, ..special(8, "<a>") },
            Special { control: false, ..special(9, ">") },
        ];
        let specials = Specials::new(all);
        let cut = |text, parse| specials.cut(text, parse, 0);
        use TextPiece::{Text, Token};
        assert_eq!(cut("<end>  x", true), Some(vec![Token(7), Text(7..8)]));
        assert_eq!(
            cut("x  <a>  <end> >", true),
            Some(vec![Text(0..1), Token(8), Text(6..8), Token(7), Token(9)])
        );
        assert_eq!(cut("<end>", false), Some(vec![Text(0..4), Token(9)]));
        assert_eq!(cut("nothing", true), None);
        assert_eq!(specials.cut("<a><a>", true, 4), None, "they are few");
    }

    #[test]
    fn tokens_of_one_length_keep_the_order_of_the_sort() {
        let lengths = [3usize, 1, 3, 2];
        let mut ids = [0, 1, 2, 3];
        // SAFETY: four ids, all with a length.
        unsafe { terrace_sort_specials(ids.as_mut_ptr(), 4, lengths.as_ptr()) };
        assert_eq!(ids, [0, 2, 3, 1]);
    }
}
