//! Loads an engine as the command line's options say.

use crate::advice;
use crate::args::{EngineArgs, TestingArgs};
use crate::error::CliError;
use crate::no_effect;
use crate::source;
use crate::term::say;
use crate::term::{progress, signals, width};
use indicatif::ProgressStyle;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use terrace_engine::{Engine, EngineError, LoadProgress, Options};

/// Finds the model and loads it, with a progress bar while resident weights are read. `adjust` can
/// change the options last.
///
/// # Errors
/// The model cannot be found or loaded; [`CliError::Interrupted`] after Ctrl-C.
pub fn load(
    model: Option<&OsStr>,
    engine: &EngineArgs,
    testing: &TestingArgs,
    announce: Announce,
    adjust: impl FnOnce(&mut Options),
) -> Result<Engine, CliError> {
    let args = engine;
    let engine = load_with(model, args, testing, adjust, Engine::load)?;
    let preset = args.presets.from_preset.as_ref();
    no_effect::warn(&engine, args);
    if let Some(plan) = &engine.plan().hot {
        no_effect::warn_of_split(&args.placement.hot, plan);
    }
    if matches!(announce, Announce::Whole)
        && let Some(preset) = preset
    {
        say!("{preset}");
    }
    loaded(&engine, announce);
    Ok(engine)
}

/// Like [`load`], with another loader. The caller announces what was loaded with [`loaded`].
///
/// # Errors
/// As [`load`].
pub fn load_with<T>(
    model: Option<&OsStr>,
    engine: &EngineArgs,
    testing: &TestingArgs,
    adjust: impl FnOnce(&mut Options),
    load: impl FnOnce(Options, &mut dyn FnMut(LoadProgress) -> ControlFlow<()>) -> Result<T, EngineError>,
) -> Result<T, CliError> {
    let model = source::resolve(model)?;
    let mut options = engine.options(model, testing)?;
    adjust(&mut options);
    let bar = progress::waiting("preparing the load: measuring this machine");
    let mut reads = false;
    let loaded = signals::busy_for_a_while(|| {
        load(options, &mut |progress| {
            if !std::mem::replace(&mut reads, true) {
                bar.disable_steady_tick();
                bar.set_style(style());
            }
            bar.set_length(progress.total.bytes());
            bar.set_position(progress.done.bytes());
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    bar.finish_and_clear();
    match loaded {
        Err(EngineError::Cancelled) => Err(CliError::Interrupted),
        other => Ok(other?),
    }
}

/// Lets Ctrl-C end the engine's work from now on, and prints warnings and the plan.
pub fn loaded(engine: &Engine, announce: Announce) {
    signals::set_engine(engine.interrupt_flag());
    for warning in engine.plan().placement.iter().flat_map(|plan| &plan.warnings) {
        tracing::warn!("{}", advice::warning(warning));
    }
    match announce {
        Announce::Nothing => {}
        Announce::Line => say!("{}; -v prints the plan", engine.plan()),
        Announce::Whole => say!("{:#1$}", engine.plan(), width::of_stderr()),
    }
}

/// Amount of the plan that is printed on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// Nothing: the report contains the plan.
    Nothing,
    Line,
    /// All of it.
    Whole,
}

impl Announce {
    /// All of it if `verbose`, nothing if a JSON report follows, else one line.
    pub const fn of(verbose: bool, json: bool) -> Self {
        match (verbose, json) {
            (true, _) => Self::Whole,
            (false, true) => Self::Nothing,
            (false, false) => Self::Line,
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("loading {wide_bar} {binary_bytes} of {binary_total_bytes}")
        .expect("a constant template")
}
