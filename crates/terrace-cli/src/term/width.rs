//! The width of texts for people.

use std::borrow::Cow;
use terminal_size::{Width, terminal_size_of};
use terrace_plan::TEXT_WIDTH;
use textwrap::WordSplitter;

/// Columns of the terminal at stdout; 80 if there is none.
pub fn of_stdout() -> usize {
    columns(terminal_size_of(std::io::stdout()))
}

/// Columns of the terminal at stderr; 80 if there is none.
pub fn of_stderr() -> usize {
    columns(terminal_size_of(std::io::stderr()))
}

/// Breaks lines that are wider than the terminal at stderr by words, further in than they begin. Without a
/// terminal the text stays as it is.
pub fn for_stderr(text: &str) -> Cow<'_, str> {
    let Some((Width(columns), _)) = terminal_size_of(std::io::stderr()) else { return text.into() };
    broken(text, columns.into()).map_or(text.into(), Cow::Owned)
}

/// `None` if no line is wider than `width` columns.
fn broken(text: &str, width: usize) -> Option<String> {
    let is_wide = |line: &str| textwrap::core::display_width(line) > width;
    text.lines().any(is_wide).then(|| {
        let mut out = String::with_capacity(text.len() + 16);
        for line in text.lines() {
            let indent = line.len() - line.trim_start_matches(' ').len() + 2;
            match is_wide(line) && indent < width / 2 {
                true => out.push_str(&textwrap::fill(line, options(width, &" ".repeat(indent)))),
                false => out.push_str(line),
            }
            out.push('\n');
        }
        out
    })
}

/// Breaks between words alone: neither within paths nor within options such as `--ram-budget`.
fn options(width: usize, indent: &str) -> textwrap::Options<'_> {
    textwrap::Options::new(width)
        .subsequent_indent(indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation)
}

/// Breaks the lines of a text by words, so that each has at most `width` columns. What follows a break begins
/// after `indent`.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    text.lines().map(|line| textwrap::fill(line, options(width, indent)) + "\n").collect()
}

fn columns<H>(size: Option<(Width, H)>) -> usize {
    size.map_or(TEXT_WIDTH, |(Width(columns), _)| columns.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_break_between_words() {
        assert_eq!(broken("hint: short\n", 20), None);
        let text = "hint: use --ram-budget 8GiB\n  a /long/path/of/a/model.gguf\nend\n";
        let expected = "hint: use\n  --ram-budget 8GiB\n  a\n    /long/path/of/a/model.gguf\nend\n";
        assert_eq!(broken(text, 20).unwrap(), expected);
        let coloured = "\u{1b}[33m WARN\u{1b}[0m four five";
        assert_eq!(broken(coloured, 15), None, "colours take no columns");
    }
}
