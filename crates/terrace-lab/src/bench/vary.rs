//! Measures each of several values of options: `--vary`, and rows in llama-bench's forms.

use super::agree::agree;
use super::arguments::with_prompt;
use super::child::Side;
use super::rows::{Form, Row, Test};
use super::vary_values::{LOAD_MODE, combinations, load_mode};
use super::{BenchArgs, MemoryCap, measure};
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::term::{print, signals, width};
use terrace_ggml::gguf;

/// Measures all combinations with each model, and prints tables or rows.
///
/// # Errors
/// A run fails, runs of one combination disagree, or a value is wrong.
pub fn measured(
    args: &BenchArgs,
    (models, prompt): (&[PathBuf], &Path),
    cold: bool,
    cap: Option<&MemoryCap>,
) -> Result<(), CliError> {
    let mut all = Vec::new();
    let mut tables = Vec::new();
    for model in models {
        let (tests, rows) = of_model(args, (model, prompt), cold, cap)?;
        let name = if models.len() > 1 { format!("{}\n", model.display()) } else { String::new() };
        tables.push(name + &table(&tests, &rows));
        all.extend(rows);
    }
    match args.output {
        Some(form) => print(&form.text(&all)),
        None if args.json => print(&Form::Json.text(&all)),
        None => print(&width::wrapped(&tables.join("\n"), width::of_stdout(), "  ")),
    }
}

/// Measures all combinations with one model.
fn of_model(
    args: &BenchArgs,
    (model, prompt): (&Path, &Path),
    cold: bool,
    cap: Option<&MemoryCap>,
) -> Result<(Vec<Test>, Vec<Row>), CliError> {
    let header = gguf::read(model)?;
    let mut tests = Vec::new();
    for settings in combinations(&args.vary) {
        let side = side(args, &settings, model, prompt)?;
        let mut sides = [side];
        let mut measured = signals::busy(|| measure(&mut sides, args.repetitions, cold, cap, false))?;
        agree(&sides, &measured.runs, &[], args.tolerance)?;
        let mut runs = measured.runs.remove(0);
        runs.remove(0);
        let settings = settings.into_iter().map(|(option, value)| (option.to_owned(), value.to_owned()));
        tests.push(Test { settings: settings.collect(), depth: args.depth.unwrap_or(0), runs });
    }
    let rows = tests.iter().flat_map(|test| Row::of(test, &header, model)).collect();
    Ok((tests, rows))
}

/// The runs of one combination.
fn side(args: &BenchArgs, settings: &[(&str, &str)], model: &Path, prompt: &Path) -> Result<Side, CliError> {
    let mut n = args.n;
    let mut own = args.clone();
    let number = |option: &str, value: &str| {
        value.parse::<u32>().map_err(|_| CliError::Usage {
            message: format!("--vary {option}={value}: must be a number"),
            hint: "give numbers, separated by commas, or a range like 512-4096*2".into(),
        })
    };
    for (option, value) in settings {
        match *option {
            "n" => n = number(option, value)?.max(1),
            "prompt-tokens" => own.prompt_tokens = Some(number(option, value)?.max(1)),
            "depth" => own.depth = Some(number(option, value)?),
            LOAD_MODE => {
                let (mmap, direct) = load_mode(value);
                for (option, value) in [("mmap", mmap), ("direct", direct)] {
                    match value {
                        Some(value) => own.engine.words.set(option, value),
                        None => own.engine.words.forget(option),
                    }
                }
            }
            "device" if *value == "auto" => own.engine.words.forget(option),
            _ => own.engine.words.set(option, value),
        }
    }
    own.n = n;
    let mut engine = with_prompt(&own);
    own.drafts.tell(&mut engine);
    Ok(Side::with(&engine, n, model, prompt))
}

/// A line for each combination: its settings, and the rates.
fn table(tests: &[Test], rows: &[Row]) -> String {
    let options: Vec<&str> =
        tests.first().iter().flat_map(|test| &test.settings).map(|(option, _)| option.as_str()).collect();
    let column = |option: &str| option.chars().count().max(6) + 2;
    let mut head: String = options.iter().map(|option| format!("{option:>0$}", column(option))).collect();
    head += &format!("{:>18}{:>10}{:>8}\n", "test", "tokens/s", "±");
    let mut out = head;
    for row in rows {
        for (option, (_, value)) in options.iter().zip(&row.settings) {
            out += &format!("{value:>0$}", column(option));
        }
        let (mean, deviation) = row.rate();
        out += &format!("{:>18}{mean:>10.2}{deviation:>8.2}\n", row.test());
    }
    out
}
