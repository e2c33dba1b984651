//! `terrace plan` of a repository or a folder with several quantisations of a model: which of them to use.

mod show;

use super::{PlanArgs, options};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ops::ControlFlow;
use terrace_cli::error::CliError;
use terrace_cli::source::{self, Candidate};
use terrace_cli::term::progress::{self, MEASURING};
use terrace_cli::term::{print, signals, width};
use terrace_engine::{PlannedMachine, plan_run};
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::{MIN_WIDTH, MachineProfile, Plan, TEXT_WIDTH};

/// Tokens per second that a person reads at, and does not wait.
const READABLE: f64 = 10.0;
/// More bits per weight than these give answers that hardly differ.
const ENOUGH_BITS: f64 = 9.0;
/// With fewer bits, answers become noticeably worse.
const FEW_BITS: f64 = 4.0;

/// A quantisation on a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// MODEL for it.
    pub model: String,
    /// Part of its file's name that the other names do not have.
    #[serde(rename = "type")]
    pub file_type: String,
    /// Bytes of its weights.
    pub bytes: ByteSize,
    /// Bits per weight.
    pub bits: f64,
    #[serde(flatten)]
    pub run: Run,
}

/// The expected run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Run {
    /// It works.
    Runs {
        weights: Weights,
        decode_tok_s: f64,
        /// Milliseconds to the first token, the model loaded.
        ttft_ms: f64,
        /// Tokens of the prompt that this is for.
        prompt_tokens: u32,
    },
    /// It does not, for this reason.
    Refused { reason: String },
}

/// Place of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    Ram,
    Devices,
    RamAndDevices,
    /// Some stream.
    Disk,
}

/// The quantisations, and the one to use.
#[derive(Debug, Serialize)]
struct Report {
    quantisations: Vec<Entry>,
    /// MODEL.
    recommended: Option<String>,
    /// The reason.
    why: Option<&'static str>,
}

/// Prints the comparison, if MODEL stands for several quantisations of one model. Returns whether it does.
///
/// # Errors
/// Errors of the hub, options that are for one model, or different models in a folder.
pub fn compared(args: &PlanArgs, described: Option<&MachineProfile>) -> Result<bool, CliError> {
    let Some(model) = &args.model else { return Ok(false) };
    let style = ProgressStyle::with_template("reading headers {wide_bar} {pos}/{len}, {eta} left");
    let bar = ProgressBar::with_draw_target(None, progress::target())
        .with_style(style.expect("a constant template"));
    let candidates = source::candidates(model, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let candidates = candidates?;
    let Some(files) = of_one_model(&candidates) else { return Ok(false) };
    refuse_options_of_one(args)?;
    let types = distinct(&candidates);
    let mut entries = Vec::new();
    for ((candidate, file), file_type) in candidates.iter().zip(&files).zip(types) {
        entries.push(entry(args, described, candidate, file, file_type)?);
    }
    entries.sort_by_key(|entry| entry.bytes);
    let best = recommended(&entries);
    let columns = width::of_stdout().clamp(MIN_WIDTH, TEXT_WIDTH);
    print(&match args.json {
        true => {
            let (recommended, why) = best.map(|(entry, why)| (entry.model.clone(), why)).unzip();
            let report = Report { recommended, why, quantisations: entries };
            serde_json::to_string_pretty(&report).expect("plain data")
        }
        false => show::text(&entries, best, columns),
    })?;
    Ok(true)
}

/// The headers, if they are of one model: of the same shape, with the same number of weights.
fn of_one_model(candidates: &[Candidate]) -> Option<Vec<ModelFile>> {
    let files: Vec<ModelFile> = candidates
        .iter()
        .map(|candidate| terrace_ggml::gguf::read(candidate.header.path()))
        .collect::<Result<_, _>>()
        .ok()?;
    let shape = |file: &ModelFile| {
        let key = |name: &str| file.u64(&format!("{}.{name}", file.architecture()));
        let weights: u64 = file.tensors.iter().map(|tensor| tensor.shape.elements()).sum();
        (file.architecture().to_owned(), key("block_count"), key("embedding_length"), weights)
    };
    let first = shape(files.first()?);
    (files.len() > 1 && files.iter().all(|file| shape(file) == first)).then_some(files)
}

/// Refuses options that are about the plan of one model.
fn refuse_options_of_one(args: &PlanArgs) -> Result<(), CliError> {
    let given = [
        ("--explain", args.explain.is_some()),
        ("--svg", args.svg.is_some()),
        ("--workers", !args.workers.workers.is_empty()),
        ("--plan", args.engine.following.plan.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(CliError::Usage {
            message: format!("{option} is about the plan of one model, but MODEL has several quantisations"),
            hint: "name one, as hf:owner/repo:TYPE or as a .gguf file; without the option they are compared"
                .into(),
        }),
    }
}

/// Distinctive parts of the names of files: all without their common beginning, up to a separator.
fn distinct(candidates: &[Candidate]) -> Vec<String> {
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.file.as_str()).collect();
    let Some((first, rest)) = names.split_first() else { return Vec::new() };
    let common = rest.iter().fold(first.len(), |common, name| {
        let same = first.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        common.min(same)
    });
    let begin =
        first.as_bytes()[..common].iter().rposition(|byte| b"-.".contains(byte)).map_or(0, |at| at + 1);
    names
        .iter()
        .map(|name| name.get(begin..).filter(|rest| !rest.is_empty()).unwrap_or(name).to_owned())
        .collect()
}

fn entry(
    args: &PlanArgs,
    described: Option<&MachineProfile>,
    candidate: &Candidate,
    file: &ModelFile,
    file_type: String,
) -> Result<Entry, CliError> {
    let mut options = options(args, candidate.header.path().to_owned())?;
    // What earlier runs of one of them expect would not compare.
    options.cache.warm_start = Some(false);
    let machine = PlannedMachine { described, changes: args.what_if.as_ref(), probed: true };
    let run = match progress::patiently(MEASURING, || plan_run(&options, machine)) {
        Ok(planned) => run(&planned.plan),
        Err(error) => Run::Refused { reason: error.to_string() },
    };
    let weights: u64 = file.tensors.iter().map(|tensor| tensor.shape.elements()).sum();
    let bits = file.size().bytes() as f64 * 8.0 / weights.max(1) as f64;
    Ok(Entry { model: candidate.name.clone(), file_type, bytes: file.size(), bits, run })
}

fn run(plan: &Plan) -> Run {
    let Some(estimate) = &plan.estimate else { return Run::Refused { reason: "it has no layers".into() } };
    let weights = match (plan.managed_tensors > 0, plan.on_devices > ByteSize::ZERO) {
        (true, _) => Weights::Disk,
        (false, false) => Weights::Ram,
        (false, true) if plan.resident == ByteSize::ZERO && plan.mapped == ByteSize::ZERO => Weights::Devices,
        (false, true) => Weights::RamAndDevices,
    };
    Run::Runs {
        weights,
        decode_tok_s: estimate.decode_tok_s,
        ttft_ms: estimate.ttft_ms,
        prompt_tokens: estimate.prompt_tokens,
    }
}

/// The quantisation to use, with the reason. `entries` are in order of size.
fn recommended(entries: &[Entry]) -> Option<(&Entry, &'static str)> {
    let rate = |entry: &Entry| match entry.run {
        Run::Runs { decode_tok_s, .. } => decode_tok_s,
        Run::Refused { .. } => 0.0,
    };
    let fits = |entry: &&Entry| matches!(entry.run, Run::Runs { weights, .. } if weights != Weights::Disk);
    let usable = |entry: &&Entry| entry.bits <= ENOUGH_BITS && entry.bits >= FEW_BITS;
    let quick = |entry: &&Entry| rate(entry) >= READABLE;
    let all = || entries.iter().filter(|entry| rate(entry) > 0.0);
    let by_rate = |a: &&Entry, b: &&Entry| rate(a).total_cmp(&rate(b));
    if let Some(entry) = all().filter(fits).filter(usable).rfind(quick) {
        return Some((entry, "the most precise in memory at 10 tokens/s or more"));
    }
    if let Some(entry) = all().filter(fits).filter(usable).max_by(by_rate) {
        return Some((entry, "the fastest one in memory with 4 bits or more"));
    }
    if let Some(entry) = all().filter(usable).max_by(by_rate) {
        return Some((entry, "the fastest one with 4 bits or more; it streams from disk"));
    }
    all().max_by(by_rate).map(|entry| (entry, "the fastest one"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub mod tests {
    use super::*;
    use terrace_cli::source::Header;

    pub fn entry(file_type: &str, gib: u64, bits: f64, weights: Weights, rate: f64) -> Entry {
        let run = match rate {
            0.0 => Run::Refused { reason: "no room".into() },
            _ => Run::Runs { weights, decode_tok_s: rate, ttft_ms: 1234.0, prompt_tokens: 512 },
        };
        let model = format!("hf:owner/repo:model-{file_type}.gguf");
        Entry { model, file_type: file_type.into(), bytes: ByteSize::gib(gib), bits, run }
    }

    #[test]
    fn what_fits_and_is_fast_enough_is_recommended() {
        let ram = Weights::Ram;
        let of = |entries: &[Entry]| {
            let (entry, why) = recommended(entries).unwrap();
            (entry.file_type.clone(), why)
        };
        let all = [
            entry("Q2_K", 3, 2.9, ram, 40.0),
            entry("Q4_K_M", 5, 4.8, ram, 25.0),
            entry("Q8_0", 8, 8.5, ram, 12.0),
            entry("F16", 16, 16.0, ram, 11.0),
        ];
        assert_eq!(of(&all).0, "Q8_0", "more bits give nothing");
        assert_eq!(of(&all[..2]).0, "Q4_K_M");
        let slow = [entry("Q4_K_M", 5, 4.8, ram, 5.0), entry("Q8_0", 8, 8.5, ram, 3.0)];
        assert_eq!(of(&slow), ("Q4_K_M".into(), "the fastest one in memory with 4 bits or more"));
        let streams = [
            entry("Q2_K", 3, 2.9, ram, 40.0),
            entry("Q4_K_M", 5, 4.8, Weights::Disk, 5.0),
            entry("Q8_0", 8, 8.5, Weights::Disk, 0.0),
        ];
        assert_eq!(of(&streams).0, "Q4_K_M");
        assert_eq!(of(&streams[..1]), ("Q2_K".into(), "the fastest one"));
        assert!(recommended(&streams[2..]).is_none());
    }

    #[test]
    fn types_are_what_names_have_apart() {
        let types = |names: &[&str]| {
            let candidates: Vec<Candidate> = names
                .iter()
                .map(|name| Candidate {
                    name: (*name).into(),
                    file: (*name).into(),
                    header: Header::Local("x".into()),
                })
                .collect();
            distinct(&candidates)
        };
        assert_eq!(
            types(&["Qwen3-30B-Q4_K_M", "Qwen3-30B-Q4_K_S", "Qwen3-30B-UD-Q4_K_XL"]),
            ["Q4_K_M", "Q4_K_S", "UD-Q4_K_XL"]
        );
        assert_eq!(types(&["a.Q4_0", "a.Q8_0"]), ["Q4_0", "Q8_0"]);
        assert_eq!(types(&["model", "model-Q8_0"]), ["model", "model-Q8_0"]);
        assert_eq!(types(&["x", "y"]), ["x", "y"]);
    }
}
