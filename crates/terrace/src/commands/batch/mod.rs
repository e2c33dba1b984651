//! `terrace batch`: answers the requests of a file, as many at a time as are done soonest.

mod args;
mod error;
mod parallel;
mod show;

pub use args::BatchArgs;
pub use error::Undone;
pub use show::duration;

use show::{Display, line};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_cli::advice;
use terrace_cli::error::CliError;
use terrace_cli::loading::{self, Announce};
use terrace_cli::source;
use terrace_cli::term::{say, signals};
use terrace_plan::batches::BatchWork;
use terrace_platform::input_file;
use terrace_server::batch::{self, ANSWERS, Input, Journal, RunEnd, work_of};
use terrace_server::{App, ServerConfig};
use terrace_serving::{Lockstep, Serving, ServingOptions, SharePasses};
use terrace_store::part_file::PartFile;

/// Tokens of an answer that plans expect where neither a request nor -n limits it.
pub const ANSWER: u32 = 256;

/// Answers all requests.
///
/// # Errors
/// A file cannot be read or written, the model cannot be loaded, or a request failed; [`CliError::Interrupted`] after
/// Ctrl-C.
pub fn batch(args: &BatchArgs, verbose: bool) -> Result<(), CliError> {
    let sampling = args.sampling.settings()?;
    let template = args.template.source()?;
    let input = Input::open(&args.requests).map_err(Undone::from)?;
    let journal_path = journal_path(&args.output);
    if !journal_path.exists() && args.output.metadata().is_ok_and(|there| there.len() > 0) {
        return already_done(&args.output, &input);
    }
    let work = work(args, &input)?;
    let parallel = match args.parallel {
        Some(parallel) => parallel,
        None => {
            let model = source::resolve(args.model.as_deref())?;
            parallel::soonest(&args.engine.options(model, &args.testing)?, work)?
        }
    };
    signals::on_terminate()?;
    let announce = Announce::of(verbose, false);
    let engine = loading::load(args.model.as_deref(), &args.engine, &args.testing, announce, |options| {
        parallel::set(options, work, parallel);
        options.chat_template = template;
        options.adapters = args.adapters.all(true);
        options.vision = args.vision.clone();
        options.embeddings = Some(args.embeddings);
    })?;
    args.sampling.check(engine.vocabulary())?;
    // From now on Ctrl-C ends the batch, and the engine's work with it.
    signals::forget_engine();
    let mut journal = Journal::open(&journal_path, engine.identity(), &input).map_err(Undone::from)?;
    if args.retry_failed {
        journal.forget_failures();
    }
    let app = Arc::new(App::new(&ServerConfig {
        strict: args.strict,
        sampling,
        thinking: args.thinking.clone(),
        seed: args.sampling.seed,
        n_max: args.n,
        name: args.alias.clone(),
        advice: Some(advice::to_clients),
        ..ServerConfig::default()
    }));
    let ready = app.serve(Serving::start(engine, serving_options(args, parallel)));
    if journal.done() > 0 {
        say!("{} of {} requests have answers already", journal.done(), input.len());
    }
    say!("answering {parallel} at a time, each with a context of {} tokens", ready.facts.context);
    let mut display = Display::new();
    let mut last = batch::Progress::default();
    let ended = signals::busy(|| {
        let ended = batch::run(&app, &input, &mut journal, &mut |progress| {
            display.show(progress);
            last = *progress;
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        display.clear();
        ready.stop();
        ended
    });
    say!("{}", summary(&last));
    match ended.map_err(Undone::from)? {
        RunEnd::Stopped => {
            say!("the answers are in {}; the same command goes on", journal_path.display());
            Err(CliError::Interrupted)
        }
        RunEnd::Done => finish(&args.output, journal),
    }
}

/// Writes the output. The journal stays if requests failed, for `--retry-failed`.
fn finish(output: &Path, journal: Journal) -> Result<(), CliError> {
    let (failed, requests) = (journal.failed(), journal.requests());
    let write = || {
        let part = PartFile::create(output, &ANSWERS)?;
        let mut out = BufWriter::new(part.file());
        journal.write_answers(&mut out, None)?;
        out.flush()?;
        drop(out);
        part.seal()?.publish()
    };
    write().map_err(CliError::io(output.display().to_string()))?;
    if failed > 0 {
        return Err(Undone::Failed { failed, requests, output: output.to_owned() }.into());
    }
    Ok(journal.remove().map_err(Undone::from)?)
}

/// Reports an output that is complete, since there is no journal.
fn already_done(output: &Path, input: &Input) -> Result<(), CliError> {
    let io = || CliError::io(output.display().to_string());
    let (file, _) = input_file::open(output).map_err(io())?;
    let answers =
        BufReader::new(file).split(b'\n').try_fold(0, |n, line| line.map(|_| n + 1)).map_err(io())?;
    let requests = input.len();
    if answers != requests {
        return Err(Undone::OtherOutput { output: output.to_owned(), answers, requests }.into());
    }
    say!("{} has the answers to all {requests} requests already", output.display());
    Ok(())
}

/// The file of answers until all are there.
fn journal_path(output: &Path) -> PathBuf {
    let mut name = OsString::from(output);
    name.push(".partial");
    name.into()
}

/// The work of the requests.
fn work(args: &BatchArgs, input: &Input) -> Result<BatchWork, CliError> {
    let answer = args.n.and_then(|n| u32::try_from(n).ok()).unwrap_or(ANSWER);
    Ok(work_of(input, answer).map_err(Undone::from)?)
}

fn serving_options(args: &BatchArgs, slots: u32) -> ServingOptions {
    ServingOptions {
        slots,
        // One request may ask for many answers.
        queue: usize::MAX,
        batch_slots: args.batch_slots,
        share_passes: SharePasses::WhereReadsDecide,
        prefill_latency: None,
        lockstep: Some(Lockstep { part: args.prompt_part.map(|part| part as usize) }),
    }
}

/// Sums up a run.
fn summary(progress: &batch::Progress) -> String {
    let answered = progress.done - progress.before;
    let rate = |tokens: u64, seconds: f64| {
        if seconds > 0.0 { format!(" at {:.1} tokens/s", tokens as f64 / seconds) } else { String::new() }
    };
    format!(
        "{}; {answered} answers in {}: {} tokens generated{}, {} prompt tokens evaluated{} and {} shared, in {} passes",
        line(progress),
        duration(progress.time.max(Duration::from_secs(1))),
        progress.tokens,
        rate(progress.tokens, progress.decode_seconds),
        progress.prompt_tokens,
        rate(progress.prompt_tokens, progress.prefill_seconds),
        progress.reused_tokens,
        progress.passes,
    )
}
