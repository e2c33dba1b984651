//! Ends a text at a line, as editors want it that have a gap filled.

use std::time::{Duration, Instant};

/// Which lines of a text are the last ones. The first line never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineLimits {
    /// The text ends before a line with fewer blanks at its begin.
    pub indent: usize,
    /// The text ends with the first line that is complete after this time.
    pub time: Option<Duration>,
}

/// A text whose lines are limited.
#[derive(Debug)]
pub struct Lines {
    limits: LineLimits,
    /// When the first bytes came.
    begun: Option<Instant>,
    /// Number of blanks at the begin of the current line, as long as nothing else came. `None` in the
    /// first line.
    blanks: Option<usize>,
}

impl Lines {
    /// A text that has not begun.
    pub const fn new(limits: LineLimits) -> Self {
        Self { limits, begun: None, blanks: None }
    }

    /// Takes the next piece. Returns how much of it belongs to the text if that ends here.
    pub fn push(&mut self, piece: &[u8]) -> Option<usize> {
        if self.limits == LineLimits::default() {
            return None;
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        for (place, &byte) in piece.iter().enumerate() {
            match (byte, self.blanks) {
                (b' ' | b'\t', Some(blanks)) => self.blanks = Some(blanks + 1),
                // As in llama-server, an empty line is one with too few blanks.
                (_, Some(blanks)) if blanks < self.limits.indent => return Some(place),
                (b'\n', _) if self.limits.time.is_some_and(|most| begun.elapsed() > most) => {
                    return Some(place + 1);
                }
                (b'\n', _) => self.blanks = Some(0),
                (_, _) => self.blanks = None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest of a text that comes in these pieces.
    fn taken(limits: LineLimits, pieces: &[&str]) -> String {
        let (mut lines, mut text) = (Lines::new(limits), String::new());
        for piece in pieces {
            match lines.push(piece.as_bytes()) {
                None => text.push_str(piece),
                Some(most) => return text + &piece[..most],
            }
        }
        text
    }

    #[test]
    fn a_line_further_left_is_the_end() {
        let limits = LineLimits { indent: 4, time: None };
        let pieces = ["a = 1", "\n  ", "  b = 2\n\t\t\t\tc\n", "  }", "\n    d"];
        assert_eq!(taken(limits, &pieces), "a = 1\n    b = 2\n\t\t\t\tc\n  ");
        assert_eq!(taken(limits, &["a\n", "\n    b"]), "a\n");
        assert_eq!(taken(LineLimits::default(), &pieces), pieces.concat());
    }

    #[test]
    fn a_line_is_the_last_after_a_time() {
        let over = LineLimits { indent: 0, time: Some(Duration::ZERO) };
        let mut lines = Lines::new(over);
        assert_eq!(lines.push(b"ab"), None);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(lines.push(b"c\nd"), Some(2));
        let long = LineLimits { indent: 0, time: Some(Duration::from_secs(3600)) };
        assert_eq!(taken(long, &["a\nb\n", "c"]), "a\nb\nc");
    }
}
