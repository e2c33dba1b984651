//! The comparison as a table.

use super::{Entry, Run, Weights};
use std::fmt::Write;
use terrace_cli::term::width::wrapped;
use terrace_plan::short_number;

/// Columns of a table with bits per weight.
const WIDE: usize = 80;
/// Most characters of a type.
const TYPE: usize = 18;

/// A line for each quantisation, and the one to use, in at most `columns`; 60 if there are fewer than 80.
pub fn text(entries: &[Entry], best: Option<(&Entry, &str)>, columns: usize) -> String {
    let wide = columns >= WIDE;
    let mut out = line(["type", "size", "bits", "weights", "tokens/s", "first"], wide);
    let mut prompt = None;
    for Entry { file_type, bytes, bits, run, model } in entries {
        let (size, bits) = (bytes.to_string(), format!("{bits:.1}"));
        let name: String = file_type.chars().take(TYPE - 1).collect();
        match run {
            Run::Refused { reason } => {
                out += &line([&name, &size, &bits, "no room", "", ""], wide);
                tracing::debug!("{model}: {reason}");
            }
            Run::Runs { weights, decode_tok_s, ttft_ms, prompt_tokens } => {
                prompt = Some(*prompt_tokens);
                let (rate, first) =
                    (short_number(*decode_tok_s), format!("{} s", short_number(ttft_ms / 1e3)));
                out += &line([&name, &size, &bits, place(*weights), &rate, &first], wide);
            }
        }
    }
    let mut notes = String::new();
    if let Some((entry, why)) = best {
        let _ = writeln!(notes, "recommended: {}, {why}", entry.file_type);
        let _ = writeln!(notes, "  {}", entry.model);
    } else {
        notes += "this machine has room for none of them\n";
    }
    if let Some(tokens) = prompt {
        let _ =
            writeln!(notes, "first: to the first token of a response to {tokens} tokens, the model loaded");
    }
    format!("{out}\n{}", wrapped(&notes, columns, "  "))
}

fn line([ty, size, bits, weights, rate, first]: [&str; 6], wide: bool) -> String {
    let bits = if wide { format!("{bits:>6}") } else { String::new() };
    format!("{ty:<TYPE$}{size:>10}{bits}  {weights:<13}{rate:>9}{first:>8}").trim_end().to_owned() + "\n"
}

const fn place(weights: Weights) -> &'static str {
    match weights {
        Weights::Ram => "RAM",
        Weights::Devices => "devices",
        Weights::RamAndDevices => "RAM, devices",
        Weights::Disk => "stream",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;

    #[test]
    fn lines_fit_terminals() {
        let entries = [
            entry("UD-Q4_K_XL-with-a-long-name", 1023, 4.8, Weights::RamAndDevices, 1234.5),
            entry("F16", 1023, 16.0, Weights::Disk, 0.0),
        ];
        for columns in [60, 80] {
            let text = text(&entries, Some((&entries[0], "the fastest one")), columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            assert!(text.contains("recommended: UD-") && text.contains("no room"), "{text}");
            assert_eq!(text.contains("bits"), columns == 80, "{text}");
        }
    }
}
