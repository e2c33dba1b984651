//! Which kernel multiplies which of an expert's rows: ggml's blocked one, where there are enough of them in
//! a pass, or dot products. In a pass of prompts that get the bits of passes of their own, each prompt's
//! rows are counted by themselves.

use crate::passes::Prompts;
use std::ops::Range;

/// Rows of an expert, one after the other, that one kernel multiplies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub rows: Range<usize>,
    /// True if that is ggml's blocked kernel.
    pub blocked: bool,
}

/// The runs of an expert's rows.
pub struct Runs<'a> {
    /// The rows, each of a slot and a token, in the order of tokens.
    rows: &'a [[i32; 2]],
    prompts: Option<&'a Prompts>,
    blocked_from: usize,
    at: usize,
}

impl<'a> Runs<'a> {
    /// `blocked_from`: number of rows from which ggml's blocked kernel multiplies them.
    pub const fn of(rows: &'a [[i32; 2]], prompts: Option<&'a Prompts>, blocked_from: usize) -> Self {
        Self { rows, prompts, blocked_from, at: 0 }
    }

    /// The end of the rows from `from` on that are counted together.
    fn end_of(&self, from: usize) -> usize {
        let Some(prompts) = self.prompts else { return self.rows.len() };
        let sequence = |row: &[i32; 2]| prompts.sequence(row[1].unsigned_abs() as usize);
        let rows = &self.rows[from..];
        from + rows.iter().take_while(|row| sequence(row) == sequence(&rows[0])).count()
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let (from, all) = (self.at, self.rows.len());
        if from == all {
            return None;
        }
        self.at = self.end_of(from);
        let blocked = self.at - from >= self.blocked_from;
        // Dot products do not depend on each other, and unpack weights once for several prompts.
        while !blocked && self.at < all {
            let end = self.end_of(self.at);
            if end - self.at >= self.blocked_from {
                break;
            }
            self.at = end;
        }
        Some(Run { rows: from..self.at, blocked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_by_prompt_and_dot_products_put_together() {
        let prompts = Prompts::new(vec![9, 10, 3, 10, 2]);
        // Rows of these tokens.
        let rows: Vec<[i32; 2]> =
            [0, 3, 10, 11, 12, 13, 20, 30, 31, 32, 33, 40].map(|token| [token % 2, token]).into();
        let runs = |prompts, from| -> Vec<(Range<usize>, bool)> {
            Runs::of(&rows, prompts, from).map(|run| (run.rows, run.blocked)).collect()
        };
        let expected = [(0..2, false), (2..6, true), (6..7, false), (7..11, true), (11..12, false)];
        assert_eq!(runs(Some(&prompts), 4), expected);
        assert_eq!(runs(Some(&prompts), 5), [(0..12, false)]);
        assert_eq!(runs(None, 12), [(0..12, true)]);
        assert_eq!(runs(None, 13), [(0..12, false)]);
        assert_eq!(Runs::of(&[], None, 8).count(), 0);
    }
}
