//! An engine from the command line's options.

use crate::args::{EngineArgs, OnOff, SamplingArgs, TestingArgs};
use crate::error::CliError;
use crate::source;
use crate::term::{progress, signals};
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
    let preset = args.presets.from_preset.as_ref();
    let by_hand = |name| preset.is_none_or(|preset| !preset.settings.contains_key(name));
    if engine.plan().mode == "mapped" {
        for (name, given) in
            [("queue-depth", args.io.queue_depth.is_some()), ("request-size", args.io.request_size.is_some())]
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
    let model = source::resolve(model)?;
    let mode = match (testing.stock, engine.compute.repack) {
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
        manage: args.placement.memory.manage,
        ram_budget: args.placement.memory.ram_budget,
        adapt: args.following.adapt,
        rpc: args.placement.devices.rpc.clone(),
        device_layers: args.placement.devices.n_gpu_layers,
        split_mode: args.placement.devices.split_mode,
        vram_budget: args.placement.devices.vram_budget,
        hot_cache: args.placement.hot.hot_cache,
        hot_update: args.placement.hot.hot_update,
        hot_split: args.placement.hot.hot_split == OnOff::On,
        plan: args.following.plan.clone(),
        rules: args.placement.devices.override_tensor.clone(),
        hits: args.placement.estimates.hits.curve()?,
        kv_type: args.placement.context.kv_type,
        kv_offload: args.placement.context.kv_offload == OnOff::On,
        queue_depth: args.io.queue_depth,
        request_size: args.io.request_size,
        slots_share: args.cache.slots_share,
        io: args.io.io,
        direct: args.io.direct,
        cache_policy: args.cache.cache_policy.clone(),
        lookahead: args.cache.lookahead,
        layer_skip: args.compute.layer_skip.clone(),
        warm_start: warm_start(args),
        ctx: args.placement.context.ctx,
        batch: args.compute.batch,
        ubatch: args.placement.context.ubatch,
        threads: args.compute.threads,
        ..Options::default()
    })
}

/// Where statistics of experts are kept: in the user's cache directory, if anywhere.
fn warm_start(args: &EngineArgs) -> Option<PathBuf> {
    (args.cache.warm_start != Some(OnOff::Off))
        .then(terrace_store::user_cache_dir)?
        .map(|dir| dir.join("experts"))
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
