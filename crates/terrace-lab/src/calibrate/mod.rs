//! `terrace calibrate`.

mod args;
mod layers;
mod show;

pub use args::CalibrateArgs;

use crate::perplexity::{ChunkBar, chunk_options};
use show::Calibrated;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_cli::error::CliError;
use terrace_cli::loading;
use terrace_cli::term::say;
use terrace_cli::term::{input, print, signals};
use terrace_engine::{Engine, LossyCost, LossyFile, LossySettings, LossySource, LowFile, Options};
use terrace_eval::{EvalError, LossyBase, PerplexityOptions, lossy_base, lossy_cost};
use terrace_ggml::gguf;
use terrace_model::ModelFile;
use terrace_plan::model::expert_groups;

/// Chunks of the text on which settings are tried, if no number is given.
const CHUNKS: u32 = 4;

/// Tries settings on a text, or finds layers that can be skipped, and prints what they read and cost.
///
/// # Errors
/// Errors of the text, the engine or the output file; no settings within the limit, if a file is to be
/// written.
pub fn calibrate(args: &CalibrateArgs, verbose: bool) -> Result<(), CliError> {
    let compute = &args.engine.compute;
    if args.testing.stock || compute.layer_skip.is_some() || compute.lossy.is_some() {
        return Err(CliError::Usage {
            message: "calibrate compares with the model as it is, computed by Terrace".into(),
            hint: "leave out --stock, --layer-skip and --lossy; --try names settings".into(),
        });
    }
    if let Some(threshold) = args.skip_layers {
        return layers::calibrate(args, threshold, verbose);
    }
    let low = low(&args.tries)?;
    // Before the load, so that bad input costs no load.
    let text = input::file(&args.file)?;
    let scratch = TempDir::new().map_err(CliError::io("a temporary folder".to_owned()))?;
    let (mut engine, chunks) = load(args, None, low.as_deref(), verbose)?;
    let tokens = engine.tokenize(&text, true, false)?;
    let file = gguf::read(engine.file())?;
    let tries = match &args.tries[..] {
        [] => usual(&file)?,
        tries => tries.to_vec(),
    };
    if engine.streamed_layers().is_empty() && tries.iter().any(LossySettings::routes) {
        say!("warning: no expert streams with these options, so none is substituted or dropped");
        say!("hint: calibrate with the --ram-budget and --stream of later runs");
    }
    let mut bar = ChunkBar::new();
    let base = measured(&mut bar, |bar| {
        lossy_base(&mut engine, &tokens, &chunks, &scratch.path().join("base"), &mut |progress| {
            bar.show(progress, "without loss");
            go_on()
        })
    });
    let mut calibrated = Calibrated::of(engine.identity().clone(), base?);
    // Each number of experts needs a load of its own, so the tries with one come together.
    let mut ordered = tries;
    ordered.sort_by_key(|settings| settings.experts);
    let mut loaded = None;
    for settings in ordered {
        if settings.experts != loaded {
            drop(engine);
            (engine, _) = load(args, settings.experts, low.as_deref(), false)?;
            loaded = settings.experts;
        }
        let cost = measure(&mut engine, &settings, &tokens, &chunks, &mut calibrated.base)?;
        calibrated.tried.push((settings, cost));
    }
    print(&if args.json { calibrated.json(args.max_kld) } else { calibrated.table(args.max_kld) })?;
    let Some(path) = &args.out else { return Ok(()) };
    match calibrated.best(args.max_kld) {
        Some((settings, cost)) => {
            let identity = match settings.low.as_deref() {
                Some(low) => {
                    let named = CliError::io(low.display().to_string());
                    Some(LowFile::open(low, &file)?.identity().map_err(named)?)
                }
                None => None,
            };
            Ok(LossyFile::new(calibrated.model.clone(), settings.clone(), identity, *cost).write(path)?)
        }
        None => Err(CliError::Usage {
            message: format!(
                "no settings have a KL divergence of at most {}, so none are written",
                args.max_kld
            ),
            hint: "try weaker settings with --try, or raise --max-kld".into(),
        }),
    }
}

/// The file of experts in fewer bits that tries use; `None` if none does.
fn low(tries: &[LossySettings]) -> Result<Option<PathBuf>, CliError> {
    let mut files = tries.iter().filter_map(|settings| settings.low.as_ref());
    let first = files.next();
    match files.find(|&other| Some(other) != first) {
        Some(_) => Err(CliError::Usage {
            message: "the tries name several files with low=, but a calibration loads one".into(),
            hint: "calibrate once with each of them".into(),
        }),
        None => Ok(first.cloned()),
    }
}

/// Loads the model with this number of experts per token, and this file of experts in fewer bits, to
/// evaluate tokens one by one.
fn load(
    args: &CalibrateArgs,
    experts: Option<u32>,
    low: Option<&Path>,
    verbose: bool,
) -> Result<(Engine, PerplexityOptions), CliError> {
    let (adjust, chunks) = chunk_options(&args.engine, Some(args.chunks.unwrap_or(CHUNKS)));
    // The file is opened, and nothing read from it without a try that says so.
    let settings = LossySettings { experts, low: low.map(Path::to_owned), ..LossySettings::default() };
    let named = experts.is_some() || low.is_some();
    let adjust = |options: &mut Options| {
        (options.context.batch, options.context.ubatch) = (1, Some(1));
        adjust(options);
        options.compute.lossy = named.then_some(LossySource::Settings(settings));
    };
    let engine =
        loading::load_with(args.model.as_deref(), &args.engine, &args.testing, adjust, Engine::load)?;
    let announce = match experts {
        None => loading::Announce::of(verbose, args.json),
        Some(_) => loading::Announce::Nothing,
    };
    loading::loaded(&engine, announce);
    Ok((engine, chunks))
}

/// The settings that are tried if none are stated.
fn usual(model: &ModelFile) -> Result<Vec<LossySettings>, CliError> {
    let groups = expert_groups(model);
    let Some(used) = groups.iter().map(|group| group.top_k(model)).max() else {
        return Err(CliError::Usage {
            message: "the model has no experts, so there are no usual settings to try".into(),
            hint: "name layers with --try skip=LAYERS; --skip-layers finds them".into(),
        });
    };
    let fixed =
        ["prior=0.05", "prior=0.1", "prior=0.2", "drop=0.25", "drop=0.5", "drop=0.75", "prior=0.1,drop=0.5"];
    let mut tries: Vec<LossySettings> =
        fixed.iter().map(|text| text.parse().expect("constant settings")).collect();
    if used > 1 {
        tries.push(LossySettings { experts: Some(used - 1), ..LossySettings::default() });
    }
    Ok(tries)
}

/// Measures one of the settings.
fn measure(
    engine: &mut Engine,
    settings: &LossySettings,
    tokens: &[i32],
    chunks: &PerplexityOptions,
    base: &mut LossyBase,
) -> Result<LossyCost, CliError> {
    measured(&mut ChunkBar::new(), |bar| {
        lossy_cost(engine, settings, tokens, chunks, base, &mut |progress| {
            let message = format!("{settings}, KLD {:.4}", progress.so_far.kld.value);
            bar.at(progress.done, progress.chunks, message);
            go_on()
        })
    })
}

/// Runs work that Ctrl-C can interrupt, with its progress shown.
fn measured<T>(
    bar: &mut ChunkBar,
    work: impl FnOnce(&mut ChunkBar) -> Result<T, EvalError>,
) -> Result<T, CliError> {
    let result = signals::busy(|| work(bar));
    bar.end();
    Ok(result?)
}

fn go_on() -> ControlFlow<()> {
    if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
