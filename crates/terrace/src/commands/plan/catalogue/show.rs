//! The table of the catalogue.

use super::{Entry, Run};
use std::fmt::Write;
use terrace_plan::short_number;

/// A change that gives less is not worth a number.
const WORTH: f64 = 1.02;

/// A line for each model, in 80 columns; in 60, if there are fewer than 80, without the two changes.
pub fn table(entries: &[Entry], width: usize) -> String {
    let wide = width >= 80;
    let mut out = line(
        ["model", "type", "size", "weights", "tokens/s", "first"],
        wide.then_some(["+1 GiB", "2 disks"]),
    );
    let mut prompt = None;
    for Entry { model, file_type, bytes, run, .. } in entries {
        let size = bytes.to_string();
        match run {
            Run::Refused { reason } => {
                let mut row = line([model, file_type, &size, "do not fit", "", ""], None);
                row.truncate(row.trim_end().len());
                let _ = writeln!(out, "{row}");
                // The reasons differ in numbers alone, and have no room in the table.
                tracing::debug!("{model}: {reason}");
            }
            Run::Runs {
                fits, decode_tok_s, ttft_ms, prompt_tokens, with_more_ram, with_second_disk, ..
            } => {
                prompt = Some(*prompt_tokens);
                let place = if *fits { "fit" } else { "stream" };
                let (rate, first) = (short_number(*decode_tok_s), short_number(*ttft_ms / 1e3));
                let changes = [*with_more_ram, *with_second_disk].map(gain);
                let changes = wide.then_some([changes[0].as_str(), changes[1].as_str()]);
                out += &line([model, file_type, &size, place, &rate, &first], changes);
            }
        }
    }
    if let Some(tokens) = prompt {
        let _ = write!(
            out,
            "\nfirst: seconds to the first token of a response to {tokens} tokens, the model loaded"
        );
        if wide {
            out += "\n+1 GiB, 2 disks: tokens/s with more RAM, or reading from two such disks";
        }
        out.push('\n');
    }
    out
}

fn line([model, ty, size, place, rate, first]: [&str; 6], changes: Option<[&str; 2]>) -> String {
    let mut line = format!("{model:<18}{ty:<7}{size:>10}  {place:<7}{rate:>9}{first:>7}");
    if let Some([more, disks]) = changes {
        let _ = write!(line, "{more:>8}{disks:>8}");
    }
    line + "\n"
}

fn gain(speedup: f64) -> String {
    if speedup >= WORTH { format!("{speedup:.2}x") } else { "-".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::ByteSize;

    #[test]
    fn lines_fit_terminals() {
        let run = Run::Runs {
            fits: false,
            decode_tok_s: 1234.5,
            prefill_tok_s: 1.0,
            ttft_ms: 999_999.0,
            prompt_tokens: 512,
            with_more_ram: 1.0,
            with_second_disk: 1.874,
        };
        let entry = |run| Entry {
            model: "Qwen3-Coder-480B".into(),
            parameters_b: 480.0,
            file_type: "Q4_K_M",
            bytes: ByteSize(1023 << 30),
            source: String::new(),
            run,
        };
        let entries = [entry(run), entry(Run::Refused { reason: "no room".into() })];
        for width in [60, 80] {
            let table = table(&entries, width);
            let longest = table.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(
                longest <= 80 && table.lines().take(3).all(|line| line.chars().count() <= width),
                "{table}"
            );
            assert_eq!(table.contains("1.87x"), width == 80, "{table}");
            assert!(table.contains("do not fit"), "{table}");
        }
    }
}
