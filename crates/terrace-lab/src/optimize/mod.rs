//! `terrace optimize`: searches, with short runs, for settings that cannot be derived from the
//! model or the machine.

mod args;
mod curve;
mod knobs;
mod runs;
mod search;

pub use args::OptimizeArgs;

use crate::bench::{self, MemoryCap};
use runs::Runs;
use search::{Found, search};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use terrace_cli::error::CliError;
use terrace_cli::preset::Place;
use terrace_cli::source;
use terrace_cli::term::say;
use terrace_cli::term::{print, signals};
use terrace_plan::Budget;

/// Searches, prints one line per value that was tried, and saves the best settings as a preset.
///
/// # Errors
/// The model cannot run with its defaults, or the preset cannot be saved. After Ctrl-C the best
/// settings so far are saved.
pub fn optimize(args: &OptimizeArgs) -> Result<(), CliError> {
    // Ctrl-C between two runs must not end the program either.
    signals::busy(|| search_and_keep(args))
}

fn search_and_keep(args: &OptimizeArgs) -> Result<(), CliError> {
    let until = Instant::now() + Duration::from_secs_f64(args.minutes.min(1e6) * 60.0);
    let model = source::resolve(args.model.as_deref())?;
    let place = Place::of(&model)?.ok_or_else(|| CliError::Usage {
        message: "there is no directory to save the preset in".into(),
        hint: "set HOME or XDG_CONFIG_HOME".into(),
    })?;
    let draft_models = knobs::draft_models(args)?;
    let prompt = bench::prompt(args.prompt_file.as_deref())?;
    let cap = args.memory_cap.map(MemoryCap::new).transpose()?;
    let mut engine = args.engine.clone();
    args.drafts.tell(&mut engine);
    let mut runs = Runs::new(&engine, args.n, (&model, prompt.path()), (cap, args.cold), until);
    let first = runs.first()?;
    if let Some(out) = &args.curve {
        return curve::curve(args, out, &model, &first, &mut runs);
    }
    let knobs = knobs::of(&first, &engine, &knobs::drafts(&first, args, &model, draft_models)?);
    for knob in &knobs {
        say!("--{}: {} or {}", knob.name, knob.default, knob.values.join(", "));
    }
    let found = search(&knobs, &mut runs)?;
    let Some(found) = found else {
        return Err(match signals::interrupted() {
            true => CliError::Interrupted,
            false => CliError::Usage {
                message: format!("{} minutes are not enough for four runs with the defaults", args.minutes),
                hint: "use more --minutes, fewer tokens (-n) or a shorter prompt".into(),
            },
        });
    };
    let settings: BTreeMap<String, String> =
        found.settings.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let options = given(args);
    place.write(settings.clone(), (found.default_ms, found.best_ms), options)?;
    let text = if args.json {
        let report = serde_json::json!({
            "model": model, "mode": first.mode, "settings": settings, "default_ms": found.default_ms,
            "best_ms": found.best_ms, "complete": found.complete, "runs": runs.count, "trials": runs.trials,
            "preset": place.path(),
        });
        serde_json::to_string_pretty(&report).expect("numbers are plain data")
    } else {
        result(&found, &runs, &place)
    };
    print(&text)
}

/// The other options that influence the result, for people who read the preset.
fn given(args: &OptimizeArgs) -> String {
    let engine = &args.engine;
    let budget = match engine.placement.memory.ram_budget {
        Budget::Auto => "auto".to_owned(),
        Budget::Bytes(size) => format!("{}B", size.bytes()),
    };
    let cap = args.memory_cap.map_or_else(String::new, |cap| format!(" --memory-cap {}B", cap.bytes()));
    let (stream, io, direct, n) = (engine.placement.memory.stream, engine.io.io, engine.io.direct, args.n);
    format!("-n {n} --ram-budget {budget} --stream {stream} --io {io} --direct {direct}{cap}")
}

/// Formats the result.
fn result(found: &Found, runs: &Runs<'_>, place: &Place) -> String {
    let Found { settings, default_ms, best_ms, complete } = found;
    let end = if *complete { "all values were tried" } else { "stopped before all values were tried" };
    let (default_s, best_s) = (default_ms / 1e3, best_ms / 1e3);
    let best = if settings.0.is_empty() {
        format!("the defaults are best: {default_s:.2} s")
    } else {
        format!("best: {settings}\n{best_s:.2} s per run, {default_s:.2} s with the defaults")
    };
    format!("{best}\n{} runs, {end}\nsaved in {}\n", runs.count, place.path().display())
}
