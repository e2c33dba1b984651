//! `terrace perplexity`.

mod args;

pub use args::PerplexityArgs;

use crate::cli::EngineArgs;
use crate::error::CliError;
use crate::report::StoreReport;
use crate::{input, inspect, progress, session, signals};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use terrace_engine::{
    Engine, EngineError, Options, PerplexityOptions, PerplexityProgress, PerplexityReport, PlanReport,
};

/// Tokens in a chunk when nobody says: llama.cpp's.
const CONTEXT: u32 = 512;

/// What llama.cpp rounds contexts up to.
const CONTEXT_STEP: u32 = 256;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a PathBuf,
    text: &'a PathBuf,
    mode: &'a str,
    #[serde(flatten)]
    perplexity: &'a PerplexityReport,
    /// The estimate after each chunk.
    running: &'a [f64],
    plan: &'a PlanReport,
    store: Option<StoreReport>,
    peak_rss_bytes: u64,
}

/// Measures and prints the perplexity of a text.
///
/// # Errors
/// The text's, the engine's, or stdout's.
pub fn perplexity(args: &PerplexityArgs, verbose: bool) -> Result<(), CliError> {
    // Before the model: bad input should not cost a load.
    let text = input::file(&args.file)?;
    let (adjust, options) = chunk_options(&args.engine, args.chunks);
    let mut path = PathBuf::new();
    let announce = session::Announce::of(verbose, args.json);
    let mut engine =
        session::load(args.model.as_deref(), &args.engine, &args.testing, announce, |options| {
            adjust(options);
            path.clone_from(&options.model);
        })?;
    let tokens = engine.tokenize(&text, true, false)?;
    let mut running = Vec::new();
    let report = measure(&mut engine, &tokens, &options, &mut |progress| {
        running.push(progress.perplexity);
        if !args.json {
            // A reader who has read enough is no failure.
            let _ = inspect::print(&format!("[{}] {:.4}", progress.done, progress.perplexity));
        }
    })?;
    if args.json {
        let report = Report {
            model: &path,
            text: &args.file,
            mode: &engine.plan().mode,
            perplexity: &report,
            running: &running,
            plan: engine.plan(),
            store: StoreReport::of(&engine),
            peak_rss_bytes: terrace_engine::peak_rss().bytes(),
        };
        return inspect::print(&serde_json::to_string(&report).expect("numbers are plain data"));
    }
    eprintln!(
        "{} chunks of {} tokens in {:.1} s, {:.1} tokens/s",
        report.chunks, report.context, report.seconds, report.tokens_per_second
    );
    inspect::print(&format!("Final estimate: {}", estimate(&report)))
}

/// `PPL = 4.1234 +/- 0.01234`.
fn estimate(report: &PerplexityReport) -> String {
    match report.error {
        Some(error) => format!("PPL = {:.4} +/- {error:.5}", report.perplexity),
        None => format!("PPL = {:.4}", report.perplexity),
    }
}

/// Measures with a progress bar; `each` is told after each chunk.
///
/// # Errors
/// The engine's; [`CliError::Interrupted`] after Ctrl-C.
fn measure(
    engine: &mut Engine,
    tokens: &[i32],
    options: &PerplexityOptions,
    each: &mut dyn FnMut(&PerplexityProgress),
) -> Result<PerplexityReport, CliError> {
    let mut bar = ChunkBar::new();
    let measured = signals::busy(|| {
        engine.perplexity(tokens, options, &mut |progress| {
            bar.bar.suspend(|| each(progress));
            bar.show(progress, "evaluating");
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    bar.end();
    match measured {
        Err(EngineError::Cancelled) => Err(CliError::Interrupted),
        other => Ok(other?),
    }
}

/// Chunks of `--ctx` tokens, 512 if nobody says, and what the engine's options have to be for them.
pub fn chunk_options(
    engine: &EngineArgs,
    chunks: Option<u32>,
) -> (impl FnOnce(&mut Options) + use<>, PerplexityOptions) {
    let context = engine.ctx.unwrap_or(CONTEXT);
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
        if progress.done == 1 {
            // The time left is counted from the beginning of this measurement.
            self.bar.reset();
        }
        self.bar.set_length(progress.chunks as u64);
        self.bar.set_position(progress.done as u64);
        self.bar.set_message(format!("{what}, perplexity {:.4}", progress.perplexity));
    }

    /// It goes away.
    pub fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}
