//! `terrace perplexity`.

mod args;
mod control;
mod divergence;
mod driven;
mod format;
mod hellaswag;
mod measure;
mod reload_from;
mod reload_lines;
mod reload_loop;
mod this_machine;

pub use args::PerplexityArgs;

use format::Format;
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Measurement, Task};
use reload_from::ReloadFrom;
use reload_loop::ReloadLoop;
use std::path::PathBuf;
use terrace_cli::args::EngineArgs;
use terrace_cli::error::CliError;
use terrace_cli::term::{input, progress};
use terrace_cli::{loading, source};
use terrace_engine::{Engine, Options, ReloadReport};
use terrace_eval::{BaseLogits, HellaSwagTask, LogitsFile, PerplexityOptions, PerplexityProgress};

/// Default length of a chunk in tokens, as in llama.cpp.
const CONTEXT: u32 = 512;
/// Default number of tokens of HellaSwag tasks that are evaluated together: enough for a few tasks.
const TASKS_CONTEXT: u32 = 2048;

/// llama.cpp rounds contexts up to multiples of this.
const CONTEXT_STEP: u32 = 256;

/// Measures and prints the perplexity of a text, the divergence from a base, or the accuracy on
/// tasks: once, or for as long as the model changes.
///
/// # Errors
/// Errors of the text, the base, the engine, the script or stdout.
pub fn perplexity(args: &PerplexityArgs, verbose: bool) -> Result<(), CliError> {
    // Before the load, so that bad input costs no load.
    let text = args.file.as_deref().map(input::file).transpose()?;
    let reload_loop = if args.reload_from.is_some() { None } else { ReloadLoop::asked(args)? };
    let (task, context) = task(args, text.as_deref().unwrap_or_default())?;
    let (adjust, options) = chunks_of(context, args.chunks);
    if let Task::Divergence(base) = &task {
        base.chunks_for(&options)?;
    }
    let reload_from = match &args.reload_from {
        Some(_) => ReloadFrom::asked(args, &source::resolve(args.model.as_deref())?)?,
        None => None,
    };
    let repeats = reload_loop.is_some() || reload_from.is_some();
    let mut model = PathBuf::new();
    let announce = loading::Announce::of(verbose, args.json);
    let mut engine =
        loading::load(args.model.as_deref(), &args.engine, &args.testing, announce, |options| {
            adjust(options);
            this_machine::adapt(options);
            options.reload.allowed = repeats;
            options.context.sequences = if args.hellaswag { args.parallel } else { 1 };
            model.clone_from(&options.model);
        })?;
    let tokens = match (&task, text) {
        (Task::HellaSwag(_), _) => Vec::new(),
        (Task::Divergence(base), None) => base.tokens().to_vec(),
        (_, text) => engine.tokenize(&text.unwrap_or_default(), true, false)?,
    };
    let format = Format::of(args.format, repeats);
    let mut measurement = Measurement { args, model: model.clone(), tokens, options, task, format };
    let mut measure = |engine: &mut Engine, pass: usize, reloaded: &ReloadReport| {
        measurement.run(engine, repeats.then_some((pass, reloaded)))
    };
    match (reload_loop, reload_from) {
        (Some(reload_loop), _) => reload_loop.run(&mut engine, &model, &mut measure)?,
        (None, Some(reload_from)) => reload_from.run(&mut engine, &model, &mut measure)?,
        (None, None) => drop(measure(&mut engine, 0, &ReloadReport::default())?),
    }
    Ok(engine.finish_learned()?)
}

/// The task that the options ask for, and the number of tokens that it evaluates together.
///
/// # Errors
/// A file cannot be opened, or the text contains no tasks.
fn task(args: &PerplexityArgs, text: &str) -> Result<(Task, u32), CliError> {
    let context = args.engine.placement.context.ctx;
    if args.hellaswag {
        let tasks = HellaSwagTask::parse(text)
            .map_err(|reason| CliError::Tasks { path: args.file.clone().unwrap_or_default(), reason })?;
        let tasks = HellaSwagTask::select(tasks, args.hellaswag_tasks as usize);
        return Ok((Task::HellaSwag(tasks), context.unwrap_or(TASKS_CONTEXT)));
    }
    if let Some(path) = &args.kld {
        let base = Box::new(BaseLogits::open(path)?);
        let context = context.unwrap_or_else(|| u32::try_from(base.context()).unwrap_or(u32::MAX));
        return Ok((Task::Divergence(base), context));
    }
    let save = args.save_logits.as_deref().map(LogitsFile::create).transpose()?;
    Ok((Task::Perplexity(save), context.unwrap_or(CONTEXT)))
}

/// The options of chunks of `--ctx` tokens (512 by default), and a function that adjusts the
/// engine's options for them.
pub fn chunk_options(
    engine: &EngineArgs,
    chunks: Option<u32>,
) -> (impl FnOnce(&mut Options) + use<>, PerplexityOptions) {
    chunks_of(engine.placement.context.ctx.unwrap_or(CONTEXT), chunks)
}

fn chunks_of(context: u32, chunks: Option<u32>) -> (impl FnOnce(&mut Options) + use<>, PerplexityOptions) {
    let adjust = move |options: &mut Options| {
        // llama.cpp rounds contexts up and logs that; chunks keep the length that was asked for.
        options.context.ctx = Some(context.checked_next_multiple_of(CONTEXT_STEP).unwrap_or(context));
        options.context.outputs = options.context.batch.min(context);
    };
    (adjust, PerplexityOptions { context: context as usize, chunks: chunks.map(|n| n as usize) })
}

/// Progress of a measurement, with the time left.
pub struct ChunkBar {
    bar: ProgressBar,
}

impl Default for ChunkBar {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkBar {
    /// A hidden progress bar over chunks.
    pub fn new() -> Self {
        Self::over("chunk")
    }

    /// A hidden progress bar over other things.
    fn over(what: &str) -> Self {
        let template = format!("{{msg}} {{wide_bar}} {what} {{pos}}/{{len}}, {{eta}} left");
        let style = ProgressStyle::with_template(&template).expect("a constant template");
        Self { bar: ProgressBar::with_draw_target(None, progress::target()).with_style(style) }
    }

    /// Shows the progress, and what is being done.
    pub fn show(&mut self, progress: &PerplexityProgress, what: &str) {
        let error = progress.error.map_or(String::new(), |error| format!(" ± {error:.4}"));
        let message = format!("{what}, perplexity {:.4}{error}", progress.perplexity);
        self.at(progress.done, progress.chunks, message);
    }

    /// Shows `message` and the progress.
    pub fn at(&mut self, done: usize, of: usize, message: String) {
        if done == 1 {
            // The time left is counted from the beginning of this measurement.
            self.bar.reset();
        }
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(message);
    }

    /// Hides the bar while a line is written. If the reader has closed the pipe, that is no
    /// failure.
    fn suspend(&self, write: impl FnOnce() -> Result<(), CliError>) {
        self.bar.suspend(write).ok();
    }

    /// Removes the bar.
    pub fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}
