//! An engine from the command line's options.

use crate::cli::{EngineArgs, OnOff, SamplingArgs, TestingArgs};
use crate::error::CliError;
use crate::{model_source, progress, signals};
use indicatif::{ProgressBar, ProgressStyle};
use std::ops::ControlFlow;
use std::path::PathBuf;
use terrace_engine::{Engine, EngineError, LoadProgress, Mode, Options};
use terrace_ggml::llama::Sampling;

/// Finds the model and loads it, with a progress bar while weights that stay are read. `adjust` has the last word on the
/// options.
///
/// # Errors
/// The model's source or the engine; [`CliError::Interrupted`] after Ctrl-C.
pub fn load(
    model: Option<&str>,
    engine: &EngineArgs,
    testing: &TestingArgs,
    announce: Announce,
    adjust: impl FnOnce(&mut Options),
) -> Result<Engine, CliError> {
    let args = engine;
    let engine = load_with(model, args, testing, adjust, Engine::load)?;
    let preset = args.from_preset.as_ref();
    let by_hand = |name| preset.is_none_or(|preset| !preset.settings.contains_key(name));
    if engine.plan().mode == "mapped" {
        for (name, given) in
            [("queue-depth", args.queue_depth.is_some()), ("request-size", args.request_size.is_some())]
        {
            if given && by_hand(name) {
                tracing::warn!("--{name} does nothing: all weights are mapped, and the kernel reads them");
            }
        }
    }
    if matches!(announce, Announce::Whole)
        && let Some(preset) = preset
    {
        eprintln!("{preset}");
    }
    loaded(&engine, announce);
    Ok(engine)
}

/// Like [`load`], with another loader; what it loaded is to be announced with [`loaded`].
///
/// # Errors
/// As [`load`].
pub fn load_with<T>(
    model: Option<&str>,
    engine: &EngineArgs,
    testing: &TestingArgs,
    adjust: impl FnOnce(&mut Options),
    load: impl FnOnce(Options, &mut dyn FnMut(LoadProgress) -> ControlFlow<()>) -> Result<T, EngineError>,
) -> Result<T, CliError> {
    let model = model_source::resolve(model)?;
    let mode = match (testing.stock, engine.repack) {
        (true, _) => Mode::Stock { repack: testing.stock_repack == OnOff::On },
        (false, true) => Mode::Stock { repack: true },
        (false, false) => Mode::Terrace,
    };
    let mut options = Options {
        model,
        mode,
        faults: testing.inject_fault.clone(),
        expected_prompt: testing.expected_prompt,
        simulated_memory: testing.simulated_memory.clone(),
        ..options(engine)?
    };
    adjust(&mut options);
    let bar = bar();
    let loaded = signals::busy(|| {
        load(options, &mut |progress| {
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

/// From now on Ctrl-C ends the engine's work; and what was decided, for who wants to know.
pub fn loaded(engine: &Engine, announce: Announce) {
    signals::set_engine(engine.interrupt_flag());
    match announce {
        Announce::Nothing => {}
        Announce::Line => eprintln!("{}", engine.plan()),
        Announce::Whole => eprintln!("{:#}", engine.plan()),
    }
}

/// What is said on stderr of what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// Nothing: the report says it.
    Nothing,
    /// One line.
    Line,
    /// All of it.
    Whole,
}

impl Announce {
    /// All of it for who wants to know; for others a line, unless a report follows.
    pub const fn of(verbose: bool, json: bool) -> Self {
        match (verbose, json) {
            (true, _) => Self::Whole,
            (false, true) => Self::Nothing,
            (false, false) => Self::Line,
        }
    }
}

/// The options that commands share.
fn options(args: &EngineArgs) -> Result<Options, CliError> {
    Ok(Options {
        manage: args.manage,
        ram_budget: args.ram_budget,
        adapt: args.adapt,
        rpc: args.rpc.clone(),
        device_layers: args.n_gpu_layers,
        split_mode: args.split_mode,
        vram_budget: args.vram_budget,
        hot_cache: args.hot_cache,
        hot_update: args.hot_update,
        hot_split: args.hot_split == OnOff::On,
        plan: args.plan.clone(),
        rules: args.override_tensor.clone(),
        hits: args.hits.curve()?,
        kv_type: args.kv_type,
        kv_offload: args.kv_offload == OnOff::On,
        queue_depth: args.queue_depth,
        request_size: args.request_size,
        slots_share: args.slots_share,
        io: args.io,
        direct: args.direct,
        cache_policy: args.cache_policy.clone(),
        lookahead: args.lookahead,
        layer_skip: args.layer_skip.clone(),
        warm_start: warm_start(args),
        ctx: args.ctx,
        batch: args.batch,
        ubatch: args.ubatch,
        threads: args.threads,
        ..Options::default()
    })
}

/// Where statistics of experts are kept: in the user's cache directory, if anywhere.
fn warm_start(args: &EngineArgs) -> Option<PathBuf> {
    (args.warm_start != Some(OnOff::Off)).then(terrace_store::user_cache_dir)?.map(|dir| dir.join("experts"))
}

/// The sampler's settings; without a seed each run has its own.
pub fn sampling(args: &SamplingArgs) -> Sampling {
    let random = Sampling::default();
    Sampling {
        temp: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed.unwrap_or(random.seed),
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("loading {wide_bar} {binary_bytes}/{binary_total_bytes}")
        .expect("a constant template");
    ProgressBar::with_draw_target(None, progress::target()).with_style(style)
}
