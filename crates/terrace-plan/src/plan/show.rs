//! Displaying a plan as one line, and the rows of its table.

use super::Plan;
use super::mode::Mode;
use super::warning::Warning;
use crate::options::manage::Manage;
use std::fmt;
use terrace_model::ByteSize;
use textwrap::{Options, WordSplitter};

/// Columns of a label and the space after it.
const LABEL: usize = 14;

/// Columns of a text that is not shown on a terminal.
pub const TEXT_WIDTH: usize = 80;

/// Returns a row of a table: a label, and a value that continues below itself where `width` columns
/// are too few.
pub fn row(width: usize, label: &str, value: impl fmt::Display) -> String {
    let indent = " ".repeat(LABEL);
    let options = Options::new(width)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(&format!("{label:<LABEL$}{value}"), options) + "\n"
}

/// Formats three significant digits.
pub fn number(value: f64) -> String {
    // A value that is rounded up to the next power of ten loses a digit.
    let digits = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, manage, slots, on_devices, estimate, given, warnings, .. } = self;
        if warnings.iter().any(|warning| matches!(warning, Warning::MappedBeyondMemory { .. })) {
            write!(f, "maps {}, more than fits in memory", self.mapped)?;
        } else if matches!(mode, Mode::Mapped | Mode::FullResident) && self.managed.is_empty() {
            f.write_str("fits in memory")?;
        } else {
            write!(f, "streams {} through {slots} of RAM", streamed(*manage))?;
        }
        if *on_devices > ByteSize::ZERO {
            write!(f, ", {on_devices} on devices")?;
        }
        match given.as_ref().or(estimate.as_ref()) {
            Some(estimate) => write!(f, " - about {} tokens/s", number(estimate.decode_tok_s)),
            None => Ok(()),
        }
    }
}

/// The weights that stream, as a noun.
const fn streamed(manage: Manage) -> &'static str {
    match manage {
        Manage::Experts => "experts",
        Manage::Ffn => "feed-forward weights",
        Manage::All | Manage::Auto => "all large matrices",
        Manage::None | Manage::Mapped => "weights",
    }
}

impl Plan {
    /// Writes how much of the model is where, and how the rest is read.
    pub(super) fn memory_rows(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let Self { budget, minimum, resident, mapped, slots, direct_reason, .. } = self;
        if self.managed_tensors > 0 {
            let Self { managed_tensors: tensors, managed_bytes: bytes, token_cycle, .. } = self;
            let what = streamed(self.manage);
            let text = format!("{what}: {bytes} in {tensors} tensors; one token uses {token_cycle}");
            f.write_str(&row(width, "streamed", text))?;
            let how = if self.auto_budget { "chosen" } else { "given" };
            let text = format!("{budget} ({how}; minimum {minimum}): {resident} resident, {slots} of slots");
            f.write_str(&row(width, "RAM budget", text))?;
        }
        if self.pinned > ByteSize::ZERO {
            f.write_str(&row(width, "pinned", format!("{} of the resident weights", self.pinned)))?;
        }
        if self.on_devices > ByteSize::ZERO {
            f.write_str(&row(width, "on devices", self.on_devices))?;
        }
        let reads = match (*mapped > ByteSize::ZERO, self.direct) {
            (true, _) => "by the page cache",
            (false, true) => "direct",
            (false, false) => "buffered",
        };
        f.write_str(&row(width, "reads", format!("{reads}: {direct_reason}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_continue_below_themselves() {
        assert_eq!(row(40, "reads", "buffered: 20 MiB"), "reads         buffered: 20 MiB\n");
        let wrapped = row(40, "reads", "buffered: 20.25 MiB are streamed, the rest is not");
        assert_eq!(
            wrapped,
            "reads         buffered: 20.25 MiB are\n              streamed, the rest is not\n"
        );
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.4894, 4.71, 17.65, 2052.3].map(number), ["0.489", "4.71", "17.6", "2052"]);
    }
}
