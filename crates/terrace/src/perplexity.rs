//! `terrace perplexity`.

mod args;
mod divergence;

pub use args::PerplexityArgs;

use crate::cli::EngineArgs;
use crate::error::CliError;
use crate::report::StoreReport;
use crate::{input, inspect, progress, session, signals};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::{
    BaseLogits, Engine, EngineError, LogitsFile, Options, PerplexityOptions, PerplexityProgress,
    PerplexityReport, PlanReport,
};

/// Tokens in a chunk when nobody says: llama.cpp's.
const CONTEXT: u32 = 512;

/// What llama.cpp rounds contexts up to.
const CONTEXT_STEP: u32 = 256;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a, T> {
    model: &'a PathBuf,
    text: Option<&'a PathBuf>,
    /// What the model is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a Path>,
    /// Where log probabilities were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<&'a PathBuf>,
    mode: &'a str,
    #[serde(flatten)]
    measured: T,
    plan: &'a PlanReport,
    store: Option<StoreReport>,
    peak_rss_bytes: u64,
}

/// What was measured, and the estimate after each chunk.
#[derive(Serialize)]
struct Measured<M, R> {
    #[serde(flatten)]
    result: M,
    running: Vec<R>,
}

/// What is to be measured.
enum Task {
    /// How well a text is predicted.
    Perplexity { save: Option<LogitsFile> },
    /// How far predictions are from those of a base.
    Divergence { base: Box<BaseLogits> },
}

/// Measures and prints the perplexity of a text, or more.
///
/// # Errors
/// The text's, the base's, the engine's, or stdout's.
pub fn perplexity(args: &PerplexityArgs, verbose: bool) -> Result<(), CliError> {
    // Before the model: bad input should not cost a load.
    let text = args.file.as_deref().map(input::file).transpose()?;
    let (task, context) = task(args)?;
    let (adjust, options) = chunks_of(context, args.chunks);
    if let Task::Divergence { base } = &task {
        base.chunks_for(&options).map_err(EngineError::from)?;
    }
    let mut path = PathBuf::new();
    let announce = session::Announce::of(verbose, args.json);
    let mut engine =
        session::load(args.model.as_deref(), &args.engine, &args.testing, announce, |options| {
            adjust(options);
            path.clone_from(&options.model);
        })?;
    let tokens = text.map(|text| engine.tokenize(&text, true, false)).transpose()?;
    match task {
        Task::Perplexity { save } => {
            let tokens = tokens.unwrap_or_default();
            measure_perplexity(&mut engine, args, &path, &tokens, &options, save)
        }
        Task::Divergence { mut base } => {
            let all = base.tokens();
            let tokens = tokens.as_deref().unwrap_or(&all);
            measure_divergence(&mut engine, args, &path, tokens, &options, &mut base)
        }
    }
}

/// What the options ask for, and the length of its chunks.
///
/// # Errors
/// Files that cannot be opened.
fn task(args: &PerplexityArgs) -> Result<(Task, u32), CliError> {
    if let Some(path) = &args.kld {
        let base = Box::new(BaseLogits::open(path).map_err(EngineError::from)?);
        let context = args.engine.ctx.unwrap_or_else(|| u32::try_from(base.context()).unwrap_or(u32::MAX));
        return Ok((Task::Divergence { base }, context));
    }
    let save = args.save_logits.as_deref().map(LogitsFile::create).transpose().map_err(EngineError::from)?;
    Ok((Task::Perplexity { save }, args.engine.ctx.unwrap_or(CONTEXT)))
}

fn measure_perplexity(
    engine: &mut Engine,
    args: &PerplexityArgs,
    model: &PathBuf,
    tokens: &[i32],
    options: &PerplexityOptions,
    save: Option<LogitsFile>,
) -> Result<(), CliError> {
    let mut running = Vec::new();
    let mut bar = ChunkBar::new();
    let mut each = |progress: &PerplexityProgress| {
        running.push(progress.perplexity);
        if !args.json {
            // A reader who has read enough is no failure.
            bar.suspend(|| inspect::print(&format!("[{}] {:.4}", progress.done, progress.perplexity)).ok());
        }
        bar.show(progress, "evaluating");
        go_on()
    };
    let report = measured(|| match save {
        Some(file) => engine.save_logits(tokens, options, file, &mut each),
        None => engine.perplexity(tokens, options, &mut each),
    });
    bar.end();
    let report = report?;
    if args.json {
        return print_json(engine, args, model, Measured { result: &report, running });
    }
    pace(report.chunks, report.context, report.seconds, report.tokens_per_second);
    inspect::print(&format!("Final estimate: {}", estimate(&report)))
}

fn measure_divergence(
    engine: &mut Engine,
    args: &PerplexityArgs,
    model: &PathBuf,
    tokens: &[i32],
    options: &PerplexityOptions,
    base: &mut BaseLogits,
) -> Result<(), CliError> {
    let mut running = Vec::new();
    let mut bar = ChunkBar::new();
    let report = measured(|| {
        engine.divergence(tokens, options, base, &mut |progress| {
            running.push(progress.so_far);
            if !args.json {
                bar.suspend(|| {
                    if progress.done == 1 {
                        inspect::print(divergence::HEADER).ok();
                    }
                    inspect::print(&divergence::running(progress)).ok()
                });
            }
            bar.at(
                progress.done,
                progress.chunks,
                format!("comparing, KLD {:.5}", progress.so_far.kld.value),
            );
            go_on()
        })
    });
    bar.end();
    let report = report?;
    if args.json {
        return print_json(engine, args, model, Measured { result: &report, running });
    }
    pace(report.chunks, report.context, report.seconds, report.tokens_per_second);
    inspect::print(&divergence::statistics(&report))
}

/// Runs what Ctrl-C may interrupt.
///
/// # Errors
/// The engine's; [`CliError::Interrupted`] after Ctrl-C.
fn measured<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, CliError> {
    match signals::busy(work) {
        Err(EngineError::Cancelled) => Err(CliError::Interrupted),
        other => Ok(other?),
    }
}

fn go_on() -> ControlFlow<()> {
    if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn print_json(
    engine: &Engine,
    args: &PerplexityArgs,
    model: &PathBuf,
    measured: impl Serialize,
) -> Result<(), CliError> {
    let report = Report {
        model,
        text: args.file.as_ref(),
        base: args.kld.as_deref(),
        logits: args.save_logits.as_ref(),
        mode: &engine.plan().mode,
        measured,
        plan: engine.plan(),
        store: StoreReport::of(engine),
        peak_rss_bytes: terrace_engine::peak_rss().bytes(),
    };
    inspect::print(&serde_json::to_string(&report).expect("numbers are plain data"))
}

fn pace(chunks: usize, context: usize, seconds: f64, rate: f64) {
    eprintln!("{chunks} chunks of {context} tokens in {seconds:.1} s, {rate:.1} tokens/s");
}

/// `PPL = 4.1234 +/- 0.01234`.
fn estimate(report: &PerplexityReport) -> String {
    match report.error {
        Some(error) => format!("PPL = {:.4} +/- {error:.5}", report.perplexity),
        None => format!("PPL = {:.4}", report.perplexity),
    }
}

/// Chunks of `--ctx` tokens, 512 if nobody says, and what the engine's options have to be for them.
pub fn chunk_options(
    engine: &EngineArgs,
    chunks: Option<u32>,
) -> (impl FnOnce(&mut Options) + use<>, PerplexityOptions) {
    chunks_of(engine.ctx.unwrap_or(CONTEXT), chunks)
}

fn chunks_of(context: u32, chunks: Option<u32>) -> (impl FnOnce(&mut Options) + use<>, PerplexityOptions) {
    let adjust = move |options: &mut Options| {
        // llama.cpp rounds contexts up, and says so; chunks are as long as was asked for.
        options.ctx = Some(context.checked_next_multiple_of(CONTEXT_STEP).unwrap_or(context));
        options.outputs = options.batch.min(context);
    };
    (adjust, PerplexityOptions { context: context as usize, chunks: chunks.map(|n| n as usize) })
}

/// How far a measurement over chunks has come, with the time that is left.
pub struct ChunkBar {
    bar: ProgressBar,
}

impl ChunkBar {
    /// Nothing is shown yet.
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{msg} {wide_bar} chunk {pos}/{len}, {eta} left")
            .expect("a constant template");
        Self { bar: ProgressBar::with_draw_target(None, progress::target()).with_style(style) }
    }

    /// Shows it, and what is being done.
    pub fn show(&mut self, progress: &PerplexityProgress, what: &str) {
        let message = format!("{what}, perplexity {:.4}", progress.perplexity);
        self.at(progress.done, progress.chunks, message);
    }

    /// Shows `message`, and what is done of all chunks.
    pub fn at(&mut self, done: usize, chunks: usize, message: String) {
        if done == 1 {
            // The time left is counted from the beginning of this measurement.
            self.bar.reset();
        }
        self.bar.set_length(chunks as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(message);
    }

    /// Takes it away while something else is written.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// It goes away.
    pub fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}
