//! `terrace optimize --curve`: how the time of a run depends on slots, lookahead and queue depth, and where it
//! hardly does.

mod flat;
mod plot;

use super::args::OptimizeArgs;
use super::runs::Runs;
use super::search::{Outcome, Settings, Trials, median};
use flat::{Axis, Grid};
use serde::Serialize;
use std::path::Path;
use terrace_cli::error::CliError;
use terrace_cli::report::RunReport;
use terrace_cli::term::print;
use terrace_cli::term::say;
use terrace_cli::term::signals;
use terrace_cli::whole_file;
use terrace_engine::Lookahead;

/// Text in place of the flat parts.
const TOO_FEW: &str = "where the curve flattens is not known: time ran out before all points were measured";
/// Rounds over all points: more of them only cost time.
const ROUNDS: usize = 3;

/// The values of each axis; one alone where the user has set it.
fn axes(args: &OptimizeArgs) -> [Axis; 3] {
    let engine = &args.engine;
    let axis = |name: &'static str, given: Option<String>, values: &[&str]| Axis {
        name,
        values: given
            .map_or_else(|| values.iter().map(|value| (*value).to_owned()).collect(), |value| vec![value]),
    };
    let share = (engine.cache.slots_share != 100).then(|| engine.cache.slots_share.to_string());
    let lookahead = (engine.cache.lookahead != Lookahead::Auto)
        .then(|| engine.cache.lookahead.to_string().replace(" ", ""));
    [
        axis("slots-share", share, &["25", "50", "75", "100"]),
        axis("lookahead", lookahead, &["off", "4MiB", "12MiB", "24MiB"]),
        axis("queue-depth", engine.io.queue_depth.map(|depth| depth.to_string()), &["2", "8", "32", "128"]),
    ]
}

/// The curve for programs.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a Path,
    mode: &'a str,
    points: Vec<Point>,
    complete: bool,
    runs: usize,
    flat: Vec<String>,
    svg: &'a Path,
}

#[derive(Serialize)]
struct Point {
    settings: String,
    /// Median time of a run in milliseconds.
    ms: Option<f64>,
    rounds: usize,
}

/// Measures the points in rounds until the time is over, and draws them.
///
/// # Errors
/// Nothing streams, a run with the defaults fails, or the drawing cannot be written.
pub fn curve(
    args: &OptimizeArgs,
    out: &Path,
    model: &Path,
    first: &RunReport,
    runs: &mut Runs<'_>,
) -> Result<(), CliError> {
    if first.store.is_none_or(|store| store.misses + store.joined == 0) {
        return Err(CliError::Usage {
            message: format!("{} does not stream with these options, so there is no curve", model.display()),
            hint: "use a smaller --ram-budget".into(),
        });
    }
    let grid = Grid::new(axes(args));
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); grid.len()];
    let mut unfit = vec![false; grid.len()];
    let mut complete = true;
    'rounds: for round in 0..ROUNDS {
        // Neighbours are not measured one after the other, so that drift is no slope.
        for at in grid.order() {
            if unfit[at] {
                continue;
            }
            match runs.run(&settings(&grid, at))? {
                Outcome::Took(ms) => times[at].push(ms),
                Outcome::Unfit => unfit[at] = true,
                Outcome::Over => {
                    complete = round > 0;
                    break 'rounds;
                }
            }
        }
        say!(
            "round {}: {} of {} points",
            round + 1,
            times.iter().filter(|times| !times.is_empty()).count(),
            grid.len()
        );
    }
    if times.iter().all(Vec::is_empty) {
        return Err(match signals::interrupted() {
            true => CliError::Interrupted,
            false => CliError::Usage {
                message: format!("{} minutes are not enough for one run", args.minutes),
                hint: "use more --minutes, fewer tokens (-n) or a shorter prompt".into(),
            },
        });
    }
    let medians: Vec<Option<f64>> =
        times.iter().map(|times| (!times.is_empty()).then(|| median(times))).collect();
    whole_file::write_svg(out, &plot::draw(&grid, &medians, &model.display().to_string()))?;
    // A point that was left out could be the best of its axis.
    let all = times.iter().zip(&unfit).all(|(times, unfit)| *unfit || !times.is_empty());
    let flat = if all { flat::describe(&grid, &medians) } else { vec![TOO_FEW.to_owned()] };
    let text = if args.json {
        let points = (0..grid.len()).map(|at| Point {
            settings: settings(&grid, at).to_string(),
            ms: medians[at],
            rounds: times[at].len(),
        });
        let report = Report {
            model,
            mode: &first.mode,
            points: points.collect(),
            complete,
            runs: runs.count,
            flat,
            svg: out,
        };
        serde_json::to_string_pretty(&report).expect("numbers are plain data")
    } else {
        let end = if complete { "" } else { "\nstopped before all points were measured" };
        format!(
            "{}{}{end}\n{} runs; drawn in {}\n",
            flat::table(&grid, &medians),
            flat.join("\n"),
            runs.count,
            out.display()
        )
    };
    print(&text)
}

/// The settings of a point.
fn settings(grid: &Grid, at: usize) -> Settings {
    Settings(grid.values(at).map(|(name, value)| (name, value.to_owned())).into())
}
