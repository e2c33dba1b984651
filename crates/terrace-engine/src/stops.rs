//! Finds stop strings in text that arrives piece by piece, and knows which bytes none of them can
//! still take back.

/// Searches for the first position at which any of the strings ends; if several end there, the one
/// that begins first wins.
#[derive(Debug, Default)]
pub struct Stops {
    strings: Vec<Matcher>,
    /// Bytes that may be the beginning of a stop string.
    held: Vec<u8>,
}

/// Knuth-Morris-Pratt matcher for one string.
#[derive(Debug)]
struct Matcher {
    /// Its index in the caller's list.
    index: usize,
    string: Vec<u8>,
    /// Indexed by the length of a prefix: the length of its longest border, a shorter prefix that
    /// it ends with.
    borders: Vec<usize>,
    /// Length of the longest prefix that the text ends with.
    matched: usize,
}

impl Matcher {
    fn new(index: usize, string: &str) -> Self {
        let string = string.as_bytes().to_vec();
        let mut borders = vec![0; string.len() + 1];
        let mut border = 0;
        for i in 1..string.len() {
            while border > 0 && string[i] != string[border] {
                border = borders[border];
            }
            border += usize::from(string[i] == string[border]);
            borders[i + 1] = border;
        }
        Self { index, string, borders, matched: 0 }
    }

    /// Returns true if the string ends with this byte.
    fn push(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.string[self.matched] != byte {
            self.matched = self.borders[self.matched];
        }
        self.matched += usize::from(self.string[self.matched] == byte);
        self.matched == self.string.len()
    }
}

impl Stops {
    /// Makes matchers for these strings; empty ones are ignored.
    pub fn new(strings: &[String]) -> Self {
        let given = strings.iter().enumerate().filter(|(_, string)| !string.is_empty());
        Self { strings: given.map(|(i, string)| Matcher::new(i, string)).collect(), held: Vec::new() }
    }

    /// Takes the next piece of text. `free` gets the bytes that no string can still take back.
    /// Returns the index of the string that ends the text, if one does. The rest of the piece and
    /// the string itself are then dropped, and nothing may follow.
    pub fn push(&mut self, piece: &[u8], free: &mut Vec<u8>) -> Option<usize> {
        if self.strings.is_empty() {
            free.extend_from_slice(piece);
            return None;
        }
        for &byte in piece {
            self.held.push(byte);
            let mut ended: Option<(usize, usize)> = None;
            for string in &mut self.strings {
                if string.push(byte) && ended.is_none_or(|(_, len)| string.matched > len) {
                    ended = Some((string.index, string.matched));
                }
            }
            if let Some((index, len)) = ended {
                self.held.truncate(self.held.len() - len);
                free.append(&mut self.held);
                return Some(index);
            }
        }
        let hold = self.strings.iter().map(|string| string.matched).max().unwrap_or(0);
        free.extend(self.held.drain(..self.held.len() - hold));
        None
    }

    /// Ends the text: `free` gets the bytes that were held back.
    pub fn rest(&mut self, free: &mut Vec<u8>) {
        free.append(&mut self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Matches the whole text at once: the first end of any stop string, and of those that end
    /// there the one that begins first.
    fn oracle(text: &[u8], strings: &[String]) -> (Vec<u8>, Option<usize>) {
        for end in 1..=text.len() {
            let ends = |(_, string): &(usize, &String)| {
                !string.is_empty() && text[..end].ends_with(string.as_bytes())
            };
            // `max_by_key` returns the last of equal elements.
            let found = strings.iter().enumerate().rev().filter(ends).max_by_key(|(_, string)| string.len());
            if let Some((index, string)) = found {
                return (text[..end - string.len()].to_vec(), Some(index));
            }
        }
        (text.to_vec(), None)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn pieces_are_cut_where_the_whole_text_would_be(
            text in "[ab]{0,40}|[abcä]{0,30}",
            strings in prop::collection::vec("[ab]{0,5}|[abcä]{1,3}|(ab){1,4}a", 0..4),
            cuts in prop::collection::vec(1..6_usize, 40),
        ) {
            let (expected, stop) = oracle(text.as_bytes(), &strings);
            let mut stops = Stops::new(&strings);
            let (mut free, mut found) = (Vec::new(), None);
            let mut rest = text.as_bytes();
            for cut in cuts {
                let piece;
                (piece, rest) = rest.split_at(cut.min(rest.len()));
                let before = free.len();
                found = stops.push(piece, &mut free);
                // What was released is always a prefix of the expected text.
                prop_assert!(expected.starts_with(&free), "{before}");
                if found.is_some() {
                    break;
                }
            }
            if found.is_none() {
                found = stops.push(rest, &mut free);
            }
            if found.is_none() {
                stops.rest(&mut free);
            }
            prop_assert_eq!((free, found), (expected, stop));
        }
    }

    #[test]
    fn only_what_may_become_a_stop_string_is_held_back() {
        let mut stops = Stops::new(&["</s>".into(), String::new(), "\nUser:".into()]);
        let mut free = Vec::new();
        assert_eq!(stops.push(b"one <two> </", &mut free), None);
        assert_eq!(free, b"one <two> ");
        assert_eq!(stops.push(b"b>\nUse", &mut free), None);
        assert_eq!(free, b"one <two> </b>");
        assert_eq!(stops.push(b"r: and more", &mut free), Some(2));
        assert_eq!(free, b"one <two> </b>");
    }
}
