//! `terrace bench`: starts this binary as child processes, so that each run has its own memory and
//! its own peak of it, and finds no warm pages of the run before.

mod agree;
mod args;
mod arguments;
mod baseline;
mod cap;
mod check_plan;
mod child;
mod dead_time;
pub mod error;
mod kernel_rates;
mod rows;
mod show;
mod stats;
mod vary;
mod vary_values;

pub use args::BenchArgs;

pub use cap::MemoryCap;
pub use child::{Side, drop_page_cache, first_difference};
pub use error::BenchError;

use agree::agree;
use baseline::{Baselines, Shape, Stock, has_accelerator};
use check_plan::Check;
use indicatif::{ProgressBar, ProgressStyle};
use kernel_rates::KernelTypes;
use stats::Comparison;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::report::RunReport;
use terrace_cli::source;
use terrace_cli::term::{input, print, progress, signals};
use terrace_engine::TimelineFile;
use terrace_platform::input_file;

/// The default prompt: prose, because repeated tokens are routed unlike real text.
const PROMPT: &str = "The lighthouse keeper had counted the ships that passed since his first winter on the rock, \
    and wrote each of them into a ledger with the hour, the weather and the flag. Most nights the page stayed \
    empty. When the fog came in from the north he lit the second lamp, wound the bell, and sat by the window with \
    his coat on, listening for the engines that sometimes answered. It was on such a night, late in October, that";

/// Measures, and prints the numbers if all runs generated the same tokens.
///
/// # Errors
/// A run fails, runs disagree, or the machine cannot be prepared.
pub fn bench(args: &BenchArgs) -> Result<(), CliError> {
    if let Some(types) = &args.kernel_rates {
        // The value is only one with an equals sign before it.
        let mut names = args.model.iter().filter_map(|model| model.to_str());
        if let Some(name) = names.find(|name| name.parse::<KernelTypes>().is_ok()) {
            return Err(CliError::Usage {
                message: format!("'{name}' is read as a model, and --kernel-rates needs none"),
                hint: format!("name types as in --kernel-rates={name}"),
            });
        }
        return kernel_rates::kernel_rates(types, args.engine.compute.threads, args.json);
    }
    if args.baseline.is_some() && args.engine.compute.layer_skip.is_some() {
        return Err(CliError::Usage {
            message: "--layer-skip changes the tokens, so they cannot be compared with --baseline".into(),
            hint: "measure with and without --layer-skip; `terrace perplexity` measures its cost".into(),
        });
    }
    if args.baseline.is_some() && args.engine.compute.lossy.is_some() {
        return Err(CliError::Usage {
            message: "--lossy changes the tokens, so they cannot be compared with --baseline".into(),
            hint: "measure with and without --lossy; `terrace calibrate` measures its cost".into(),
        });
    }
    let models = models(args)?;
    let prompt = match &args.prompt {
        Some(text) => prompt_file(text)?,
        None => prompt(args.prompt_file.as_deref())?,
    };
    let cap = args.memory_cap.map(MemoryCap::new).transpose()?;
    let cold = args.cold || cap.is_some();
    let model = match models.as_slice() {
        [model] if args.vary.is_empty() && args.output.is_none() => model,
        several => return vary::measured(args, (several, prompt.path()), cold, cap.as_ref()),
    };
    // Checks that the timeline can be written before any run, rather than after all of them. The
    // check leaves no file.
    args.timeline.as_deref().map(TimelineFile::create).transpose()?;
    let mut sides = vec![Side::terrace(args, model, prompt.path())];
    let devices = has_accelerator();
    let mut rounds = devices;
    if let Some(asked) = &args.baseline {
        let stocks = signals::busy(|| baselines(args, asked, devices, (model, prompt.path()), cap.as_ref()))?;
        rounds |= stocks.iter().any(|stock| stock.split.is_some());
        sides.extend(stocks.iter().map(|stock| Side::stock(args, stock, args.n, model, prompt.path())));
    }
    let rounds = rounds && sides.len() > 1;
    let Measured { runs, logits } =
        signals::busy(|| measure(&mut sides, args.repetitions, cold, cap.as_ref(), rounds))?;
    let agreement = agree(&sides, &runs, &logits, args.tolerance)?;
    let streams = runs[0][0].store.is_some_and(|store| store.misses + store.joined > 0);
    let mut classes = Vec::new();
    if args.timeline.is_some() || streams {
        if cold {
            drop_page_cache()?;
        }
        let own = tempfile::TempDir::new().map_err(CliError::io("temporary directory"))?;
        let own = own.path().join("timeline.json");
        let path = args.timeline.as_deref().unwrap_or(&own);
        let run = signals::busy(|| match &args.timeline {
            Some(path) => sides[0].timeline(cap.as_ref(), path),
            None => sides[0].own_timeline(cap.as_ref(), path),
        })?;
        if streams {
            let failed = || CliError::io(path.display().to_string());
            let (file, _) = input_file::open(path).map_err(failed())?;
            classes = dead_time::classes(BufReader::new(file), &run).map_err(failed())?;
        }
    }
    let gbps = runs[0][0].plan["tuned_gbps"].as_f64();

    let comparison = Comparison::of(&sides, &runs);
    let checks = if args.check_plan { Some(checked(&runs[0])?) } else { None };
    let text = if args.json {
        let mut report = show::json(args, model, &runs, &comparison, &agreement);
        if let Some(checks) = checks {
            report["check_plan"] = serde_json::to_value(checks).expect("numbers are plain data");
        }
        if !classes.is_empty() {
            let of = |class: &dead_time::Class| {
                let mut value = serde_json::to_value(class).expect("numbers are plain data");
                value["cause"] = class.cause(gbps).into();
                value
            };
            report["where"] = classes.iter().map(of).collect();
        }
        serde_json::to_string_pretty(&report).expect("numbers are plain data")
    } else {
        show::table(args, model, &runs, &comparison, &agreement)
            + &if classes.is_empty() { String::new() } else { dead_time::table(&classes, gbps) }
            + &checks.as_deref().map(check_plan::table).unwrap_or_default()
    };
    print(&text)
}

/// The files of the models to measure.
///
/// # Errors
/// One cannot be found, or an option needs a single model.
fn models(args: &BenchArgs) -> Result<Vec<PathBuf>, CliError> {
    if args.model.len() < 2 {
        return Ok(vec![source::resolve(args.model.first().map(|model| model.as_ref()))?]);
    }
    let alone = [
        ("--baseline", args.baseline.is_some()),
        ("--timeline", args.timeline.is_some()),
        ("--check-plan", args.check_plan),
    ];
    if let Some((option, _)) = alone.iter().find(|(_, given)| *given) {
        return Err(CliError::Usage {
            message: format!("{option} measures one model, and {} are named", args.model.len()),
            hint: "run `terrace bench` once for each".into(),
        });
    }
    args.model.iter().map(|model| source::resolve(Some(model))).collect()
}

/// Compares the plan's estimates with the measurements.
fn checked(runs: &[RunReport]) -> Result<Vec<Check>, CliError> {
    check_plan::checks(runs).ok_or_else(|| CliError::Usage {
        message: "--check-plan: the plan has no estimates, because the model has no layers".into(),
        hint: "leave out --check-plan".into(),
    })
}

/// Finds the stock runs to compare with.
///
/// # Errors
/// The model's header cannot be read, a run was interrupted, or nothing fits.
fn baselines(
    args: &BenchArgs,
    asked: &Baselines,
    has_accelerator: bool,
    (model, prompt): (&Path, &Path),
    cap: Option<&MemoryCap>,
) -> Result<Vec<Stock>, CliError> {
    let shape = Shape::of(&terrace_ggml::gguf::read(model)?);
    let stocks = asked.runs(shape, has_accelerator, &mut |stock| {
        // The prompt and a token take as much memory as the whole run.
        let tried = Side::stock(args, stock, 1, model, prompt).run(cap);
        if signals::interrupted() {
            return Err(CliError::Interrupted);
        }
        Ok(tried.is_ok())
    })?;
    if stocks.is_empty() { Err(BenchError::NoBaseline.into()) } else { Ok(stocks) }
}

/// Measurements.
struct Measured {
    /// The runs by side, the warm-up first.
    runs: Vec<Vec<RunReport>>,
    /// The logits after the prompt, by side; empty if they are not needed.
    logits: Vec<Vec<f32>>,
}

/// Runs each side once as a warm-up, then `repetitions` times in turn (A, B, A, B), so that drift
/// affects all sides alike. The warm-ups give the logits after the prompt if a device `rounds`.
fn measure(
    sides: &mut [Side],
    repetitions: u32,
    cold: bool,
    cap: Option<&MemoryCap>,
    rounds: bool,
) -> Result<Measured, CliError> {
    let mut measured = Measured { runs: vec![Vec::new(); sides.len()], logits: Vec::new() };
    let bar = bar(u64::from(repetitions + 1) * sides.len() as u64);
    for round in 0..=repetitions {
        for (side, runs) in sides.iter_mut().zip(&mut measured.runs) {
            bar.set_message(format!(
                "{} {}",
                side.name,
                if round == 0 { "warm-up".into() } else { round.to_string() }
            ));
            if cold {
                drop_page_cache()?;
            }
            let report = match round {
                0 if rounds => side.run_with_logits(cap).map(|(report, logits)| {
                    measured.logits.push(logits);
                    report
                }),
                _ => side.run(cap),
            };
            if signals::interrupted() {
                return Err(CliError::Interrupted);
            }
            let report = report?;
            if round == 0 {
                side.expect_prompt(report.prompt_tokens);
            }
            runs.push(report);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}

fn bar(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} left")
        .expect("a constant template");
    ProgressBar::with_draw_target(Some(runs), progress::target()).with_style(style)
}

/// A temporary file with the prompt: the text of the file, or the default prompt.
///
/// # Errors
/// The file cannot be read, or the temporary file cannot be written.
pub fn prompt(path: Option<&Path>) -> Result<tempfile::NamedTempFile, CliError> {
    prompt_file(&match path {
        Some(path) => input::file(path)?,
        None => PROMPT.to_owned(),
    })
}

/// Writes the prompt to a temporary file, so that nothing can change it between two runs; deleted
/// when dropped.
fn prompt_file(text: &str) -> Result<tempfile::NamedTempFile, CliError> {
    let failed = || CliError::io("temporary prompt file");
    let mut file = tempfile::NamedTempFile::new().map_err(failed())?;
    // Runs drop one newline at the end of a file.
    file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.flush()).map_err(failed())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Cli, Command};
    use clap::Parser;
    use terrace_cli::error::Hinted;

    fn report(tokens: &[i32]) -> RunReport {
        serde_json::from_value(serde_json::json!({
            "text": "", "tokens": tokens, "prompt_tokens": 1, "stop": "length", "mode": "stock", "plan": {},
            "timings": { "load_ms": 1.0, "prompt_tps": 1.0, "decode_tps": 1.0, "ttft_ms": 1.0 },
            "store": null, "peak_rss_bytes": 1,
        }))
        .unwrap()
    }

    #[test]
    fn runs_that_differ_give_no_numbers() {
        let cli = Cli::parse_from(["terrace", "bench", "m.gguf", "--baseline", "--baseline-repack", "on"]);
        let Command::Bench(args) = cli.command else { panic!("bench") };
        let (model, prompt) = (Path::new("m.gguf"), Path::new("p.txt"));
        let cpu = Stock { name: "stock".into(), split: None };
        let sides = [Side::terrace(&args, model, prompt), Side::stock(&args, &cpu, args.n, model, prompt)];
        let same = vec![vec![report(&[1, 2, 3]); 3]; 2];
        assert!(agree(&sides, &same, &[], 0.01).unwrap().is_exact());
        let other = vec![same[0].clone(), vec![report(&[1, 2, 4]); 3]];
        let error = agree(&sides, &other, &[], 0.01).unwrap_err();
        assert!(error.to_string().contains("token 2 is 4 in stock run 0 and 3 in terrace run 0"), "{error}");
        assert!(error.hint().unwrap().contains("--baseline-repack off"));
        // A side that does not repeat itself is refused, whatever its logits are.
        let mut unsteady = same.clone();
        unsteady[1][2] = report(&[1, 2, 4]);
        let error = agree(&sides, &unsteady, &[vec![1.0, 2.0], vec![1.0, 2.0]], 0.01).unwrap_err();
        assert!(error.to_string().contains("token 2 is 4 in stock run 2 and 3 in stock run 0"), "{error}");
        let numbers = Comparison::of(&sides, &same);
        assert_eq!(numbers.rows[0].ratio.as_ref().map(|r| r.median), Some(1.0));
    }

    #[test]
    fn devices_may_round() {
        let cli = Cli::parse_from(["terrace", "bench", "m.gguf", "--baseline=full"]);
        let Command::Bench(args) = cli.command else { panic!("bench") };
        let (model, prompt) = (Path::new("m.gguf"), Path::new("p.txt"));
        let full =
            Stock { name: "stock full".into(), split: Some(baseline::StockSplit { layers: 9, cpu_moe: 0 }) };
        let sides = [Side::terrace(&args, model, prompt), Side::stock(&args, &full, args.n, model, prompt)];
        let runs = vec![vec![report(&[1, 2, 3]); 2], vec![report(&[1, 5, 3]); 2]];
        let logits = |last: f32| vec![vec![1.0, 2.0, 3.0], vec![1.0, 2.0, last]];
        let agreement = agree(&sides, &runs, &logits(3.01), 0.01).unwrap();
        assert!(!agreement.is_exact() && agreement.deviation() < 1e-4);
        let error = agree(&sides, &runs, &logits(4.0), 0.01).unwrap_err();
        assert!(error.to_string().contains("stock full runs generated other tokens from token 1"), "{error}");
    }
}
