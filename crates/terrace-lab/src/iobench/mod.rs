//! `terrace iobench`.

mod args;
mod show;

pub use args::IobenchArgs;

use indicatif::{ProgressBar, ProgressStyle};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_cli::error::CliError;
use terrace_cli::term::say;
use terrace_cli::term::{print, progress, signals};
use terrace_cli::user_dirs::user_dirs;
use terrace_model::ByteSize;
use terrace_store::kept::BlockDevice;
use terrace_store::tools::iobench::{IoBench, IoBenchError, IoReport};

/// The measurements and their outcome, for [`show`].
struct Outcome {
    path: PathBuf,
    /// True if the file was written for the measurement.
    temporary: bool,
    size: ByteSize,
    device: Option<BlockDevice>,
    report: IoReport,
    /// The file in which the settings are saved, or the reason if they are not.
    kept: Result<PathBuf, String>,
}

/// Measures how fast files, or the devices of directories, can be read, and saves the best settings
/// of each.
///
/// # Errors
/// Errors of a file, a disk or stdout.
pub fn iobench(args: &IobenchArgs) -> Result<(), CliError> {
    args.paths.iter().try_for_each(|path| one(args, path))
}

fn one(args: &IobenchArgs, path: &Path) -> Result<(), CliError> {
    let outcome = signals::busy(|| measure(args, path))?;
    if let Err(reason) = &outcome.kept {
        say!("warning: the recommended settings are not saved: {reason}");
    }
    if args.json { print(&show::json(&outcome).to_string()) } else { print(&show::text(&outcome)) }
}

fn measure(args: &IobenchArgs, path: &Path) -> Result<Outcome, CliError> {
    let time = Duration::from_secs(args.seconds.into());
    let temporary = path.is_dir();
    let bench = if temporary {
        let bar = bar(args.size.0, "{wide_bar} {bytes}/{total_bytes} written");
        let mut written = |done: ByteSize| {
            bar.set_position(done.0);
            go_on()
        };
        let bench = IoBench::scratch(path, args.size, time, &mut written).map_err(stopped)?;
        bar.finish_and_clear();
        bench
    } else {
        IoBench::file(path, time)?
    };
    let (size, device) = (bench.size(), bench.device().cloned());
    let bar = bar(bench.measurements(), "{wide_bar} {pos}/{len} measured");
    let report = bench.run(&mut || {
        bar.inc(1);
        go_on()
    });
    bar.finish_and_clear();
    let report = report.map_err(stopped)?;
    let kept = keep(path, &report);
    Ok(Outcome { path: path.to_owned(), temporary, size, device, report, kept })
}

fn keep(path: &Path, report: &IoReport) -> Result<PathBuf, String> {
    if let Some(reason) = &report.not_telling {
        return Err(reason.clone());
    }
    let settings = report.recommended.as_ref().ok_or("too few measurements")?;
    let kept = user_dirs().device_settings().keep(path, settings);
    let kept = kept.map_err(|error| error.to_string())?;
    kept.ok_or_else(|| "there is no cache directory, or the device is unknown".into())
}

fn go_on() -> ControlFlow<()> {
    if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn stopped(error: IoBenchError) -> CliError {
    match error {
        IoBenchError::Stopped => CliError::Interrupted,
        other => other.into(),
    }
}

fn bar(len: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant template");
    ProgressBar::with_draw_target(Some(len), progress::target()).with_style(style)
}
