//! The width of texts for people.

use terminal_size::{Width, terminal_size_of};
use terrace_plan::TEXT_WIDTH;

/// Columns of the terminal at stdout; 80 if there is none.
pub fn of_stdout() -> usize {
    columns(terminal_size_of(std::io::stdout()))
}

/// Columns of the terminal at stderr; 80 if there is none.
pub fn of_stderr() -> usize {
    columns(terminal_size_of(std::io::stderr()))
}

/// Breaks the lines of a text by words, so that each has at most `width` columns. What follows a break begins
/// after `indent`.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let options = textwrap::Options::new(width).subsequent_indent(indent).break_words(false);
    text.lines().map(|line| textwrap::fill(line, &options) + "\n").collect()
}

fn columns<H>(size: Option<(Width, H)>) -> usize {
    size.map_or(TEXT_WIDTH, |(Width(columns), _)| columns.into())
}
