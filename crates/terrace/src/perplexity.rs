//! `terrace perplexity`.

mod args;

pub use args::PerplexityArgs;

use crate::error::CliError;
use crate::report::StoreReport;
use crate::{input, inspect, session, signals};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::PathBuf;
use terrace_engine::{
    Engine, EngineError, PerplexityOptions, PerplexityProgress, PerplexityReport, PlanReport,
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
    let context = args.engine.ctx.unwrap_or(CONTEXT);
    let mut path = PathBuf::new();
    let mut engine = session::load(args.model.as_deref(), &args.engine, &args.testing, verbose, |options| {
        // llama.cpp rounds contexts up, and says so; chunks are as long as was asked for.
        options.ctx = Some(context.checked_next_multiple_of(CONTEXT_STEP).unwrap_or(context));
        options.outputs = options.batch.min(context - context / 2);
        path.clone_from(&options.model);
    })?;
    let tokens = engine.tokenize(&text, true, false)?;
    let options = PerplexityOptions { context: context as usize, chunks: args.chunks.map(|n| n as usize) };
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
    let bar = bar();
    let measured = signals::busy(|| {
        engine.perplexity(tokens, options, &mut |progress| {
            bar.set_length(progress.chunks as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(format!("perplexity {:.4}", progress.perplexity));
            bar.suspend(|| each(progress));
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    bar.finish_and_clear();
    match measured {
        Err(EngineError::Cancelled) => Err(CliError::Interrupted),
        other => Ok(other?),
    }
}

fn bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{msg} {wide_bar} chunk {pos}/{len}, {eta} left")
        .expect("a constant template");
    ProgressBar::with_draw_target(None, target).with_style(style)
}
