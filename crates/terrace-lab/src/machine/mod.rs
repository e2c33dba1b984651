//! `terrace machine`: measures what plans need to know about this machine, and saves it.

mod args;
mod show;

pub use args::MachineArgs;

use indicatif::{ProgressBar, ProgressStyle};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_cli::term::say;
use terrace_cli::term::{print, progress, signals};
use terrace_cli::user_dirs::user_dirs;
use terrace_host::machine::{
    Hardware, MeasureError, MeasureOptions, StoredProfile, measure_machine, merge_profiles,
};
use terrace_platform::input_file;

/// Prints the description of this machine. Measures first if there is no description, or if the
/// options name something that it lacks.
///
/// # Errors
/// A path does not exist, a server does not answer, the file cannot be written, or Ctrl-C was
/// pressed.
pub fn machine(args: &MachineArgs) -> Result<(), CliError> {
    let file = match &args.out {
        Some(path) => path.to_path_buf(),
        None => StoredProfile::kept_in(&user_dirs()).ok_or_else(|| CliError::Usage {
            message: "there is no directory to save the machine's description in".into(),
            hint: "give a file with --out, or set HOME or XDG_CONFIG_HOME".into(),
        })?,
    };
    for endpoint in &args.rpc {
        terrace_ggml::devices::rpc::add_rpc_server(endpoint)?;
    }
    let kept = if args.refresh { None } else { kept(&file) };
    if let Some(kept) = kept.as_ref().filter(|_| !args.asks()) {
        return show(args, kept, &file, false);
    }
    let paths = paths(args)?;
    for path in &paths {
        let failed = CliError::io(path.display().to_string());
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => drop(input_file::open(path).map_err(failed)?),
            Err(error) => return Err(failed(error)),
        }
    }
    StoredProfile::try_write(&file).map_err(CliError::Profile)?;
    let options = MeasureOptions {
        types: if args.types.is_empty() { MeasureOptions::TYPES.to_vec() } else { args.types.clone() },
        paths,
        scratch: args.size,
        time: Duration::from_secs_f64(args.seconds),
    };
    let bar = bar();
    let measured = signals::busy_for_a_while(|| {
        measure_machine(&options, &mut |now| {
            bar.set_length(((now.done + now.left) * 1e3) as u64);
            bar.set_position((now.done * 1e3) as u64);
            bar.set_message(format!("{}, about {:.0} s left", now.what, now.left.ceil()));
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    bar.finish_and_clear();
    let measured = match measured {
        Err(MeasureError::Stopped) => return Err(CliError::Interrupted),
        other => other?,
    };
    for skipped in &measured.skipped {
        say!("warning: not measured: {skipped}");
    }
    let mut machine = measured.machine;
    if let Some(kept) = kept {
        merge_profiles(&mut machine, &kept.machine);
    }
    let stored = StoredProfile::new(machine);
    if let Some(out) = &args.out {
        out.kind.check(out).map_err(CliError::io(out.display().to_string()))?;
    }
    stored.write(&file).map_err(CliError::Profile)?;
    show(args, &stored, &file, true)
}

/// The saved description, if it is of this machine.
fn kept(file: &std::path::Path) -> Option<StoredProfile> {
    StoredProfile::read(file, &Hardware::here()).unwrap_or_else(|error| {
        say!("warning: {error}; the file is overwritten");
        None
    })
}

/// The paths whose storage is measured.
fn paths(args: &MachineArgs) -> Result<Vec<PathBuf>, CliError> {
    if args.no_storage {
        return Ok(Vec::new());
    }
    if !args.paths.is_empty() {
        return Ok(args.paths.clone());
    }
    match &args.model {
        Some(model) => Ok(vec![source::resolve(Some(model))?]),
        None => Ok(vec![std::env::current_dir().map_err(CliError::io("the current directory"))?]),
    }
}

fn show(
    args: &MachineArgs,
    stored: &StoredProfile,
    file: &std::path::Path,
    new: bool,
) -> Result<(), CliError> {
    if args.json {
        print(&serde_json::to_string_pretty(stored).expect("a profile is plain data"))
    } else {
        print(&show::text(stored, file, new))
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("measuring {wide_bar} {msg}").expect("a constant template");
    ProgressBar::with_draw_target(None, progress::target()).with_style(style)
}
