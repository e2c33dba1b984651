//! The results, for people and for programs.

use super::BenchArgs;
use super::agree::Agreement;
use super::stats::{Comparison, Row, Spread};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_cli::report::RunReport;
use terrace_cli::term::width;
use terrace_plan::TEXT_WIDTH;
use terrace_platform::{memory, processor};

/// A table with a row per metric, a column per side, and the ratio last.
pub fn table(
    args: &BenchArgs,
    model: &Path,
    runs: &[Vec<RunReport>],
    comparison: &Comparison,
    agreement: &Agreement,
) -> String {
    let first = &runs[0][0];
    let mut out = String::new();
    let mut line = |text: String| out.push_str(&(text.trim_end().to_owned() + "\n"));
    line(format!("{} ({})", model.display(), first.mode));
    line(format!(
        "{} prompt tokens, {} generated, {}; median (min-max) of {} {}{}{}",
        first.prompt_tokens,
        first.tokens.len(),
        match agreement.is_exact() {
            true => "the same in all runs".into(),
            false => format!(
                "not the same on all devices, with logits that deviate by {:.1e} (at most {:.1e})",
                agreement.deviation(),
                args.tolerance
            ),
        },
        args.repetitions,
        if args.cold || args.memory_cap.is_some() { "cold " } else { "" },
        if args.repetitions == 1 { "run" } else { "runs" },
        args.memory_cap.map_or_else(String::new, |cap| format!(", memory capped at {cap}")),
    ));
    line(machine().unwrap_or_default());
    if let Some(preset) = &args.engine.presets.from_preset {
        line(preset.to_string());
    }
    for mark in first.lossy_marks() {
        line(mark);
    }
    let columns = width::of_stdout();
    width::wrapped(&out, columns, "  ") + &numbers(comparison, columns)
}

/// A row per metric. More than two sides, or fewer than 80 columns, have no room for the spread of each; JSON has it.
fn numbers(comparison: &Comparison, columns: usize) -> String {
    let mut out = String::new();
    let mut line = |text: String| out.push_str(&(text.trim_end().to_owned() + "\n"));
    let narrow = columns < TEXT_WIDTH;
    let (column, last, spread) = match comparison.names.len() {
        ..=2 if narrow => (11, 16, false),
        ..=2 => (19, 18, true),
        _ if narrow => (9, 8, false),
        _ => (13, 18, false),
    };
    let mut head = format!("{:<22}", "");
    for name in &comparison.names {
        let _ = write!(head, "{name:>column$}");
    }
    if comparison.names.len() > 1 {
        let title = match comparison.names.len() {
            ..=2 => "terrace / stock",
            _ if narrow => "/ best",
            _ => "/ best stock",
        };
        head += &format!("{title:>last$}");
    }
    line(head);
    let measured = |row: &&Row| row.sides.iter().any(Option::is_some);
    for row in comparison.rows.iter().filter(measured) {
        let mut text = format!("{:<22}", row.metric.label);
        for side in &row.sides {
            let _ = write!(text, "{:>column$}", cell(side.as_ref(), row.metric.scale, spread));
        }
        if let Some(ratio) = &row.ratio {
            let _ = write!(text, "{:>last$}", cell(Some(ratio), 1.0, !narrow));
        }
        line(text);
    }
    out
}

fn cell(spread: Option<&Spread>, scale: f64, whole: bool) -> String {
    let Some(spread) = spread else { return "-".into() };
    let number = |value: f64| {
        let value = value / scale;
        match value {
            ..10.0 => format!("{value:.2}"),
            ..100.0 => format!("{value:.1}"),
            _ => format!("{value:.0}"),
        }
    };
    if !whole {
        return number(spread.median);
    }
    format!("{} ({}-{})", number(spread.median), number(spread.min), number(spread.max))
}

/// One JSON object with everything, including the values of each run.
pub fn json(
    args: &BenchArgs,
    model: &Path,
    runs: &[Vec<RunReport>],
    comparison: &Comparison,
    agreement: &Agreement,
) -> Value {
    let first = &runs[0][0];
    let mut sides = Map::new();
    for (index, name) in comparison.names.iter().enumerate() {
        let numbers: Map<String, Value> = comparison
            .rows
            .iter()
            .filter_map(|row| Some((row.metric.key.to_owned(), json!(row.sides[index].as_ref()?))))
            .collect();
        let mut side = Map::from_iter(numbers);
        side.insert("mode".into(), runs[index][0].mode.clone().into());
        side.insert("plan".into(), runs[index][0].plan.clone());
        if let Some(lossy) = &runs[index][0].lossy {
            side.insert("lossy".into(), json!({"marks": lossy["marks"]}));
        }
        sides.insert((*name).to_owned(), side.into());
    }
    let ratio: Map<String, Value> = comparison
        .rows
        .iter()
        .filter_map(|row| Some((row.metric.key.to_owned(), json!(row.ratio.as_ref()?))))
        .collect();
    json!({
        "model": model,
        "machine": machine(),
        "unix_time": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
        "version": env!("CARGO_PKG_VERSION"),
        "prompt_tokens": first.prompt_tokens,
        "generated_tokens": first.tokens.len(),
        "repetitions": args.repetitions,
        "cold": args.cold || args.memory_cap.is_some(),
        "memory_cap": args.memory_cap,
        "tokens_agree": agreement.is_exact(),
        "logits_deviation": agreement.deviation(),
        "preset": args.engine.presets.from_preset,
        "sides": sides,
        "ratio": ratio,
    })
}

/// The CPU, its cores and the memory.
fn machine() -> Option<String> {
    let name = processor::name();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = memory::total()?;
    Some(format!(
        "{}, {cores} cores, {} RAM",
        if name.is_empty() { "unknown processor" } else { &name },
        terrace_model::ByteSize(memory)
    ))
}
