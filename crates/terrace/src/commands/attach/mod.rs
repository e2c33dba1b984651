//! `terrace attach`: a llama.cpp that runs with the plug-in, from outside.

mod args;
mod client;
pub mod error;
mod show;
mod trusted;

pub use args::{AttachArgs, AttachCommand};

use client::Process;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_cli::error::CliError;
use terrace_cli::term::{print, signals};
use terrace_engine::learn as files;
use terrace_model::learn::{LearnFile, Reported};

/// Asks a process for something, and prints its answer.
///
/// # Errors
/// There is no such process, or it refuses.
pub fn attach(args: &AttachArgs) -> Result<(), CliError> {
    let connect = || Process::connect(args.process.as_deref());
    let ask = |command, more| connect()?.ask(command, more);
    match &args.command {
        None => print(&show::stats(&ask("stats", None)?, None)),
        Some(AttachCommand::Stats { json }) => {
            let report = ask("stats", None)?;
            print(&if *json { report.to_string() } else { show::stats(&report, None) })
        }
        Some(AttachCommand::Top) => top(&mut connect()?),
        Some(AttachCommand::Reload) => print(&show::reload(&ask("reload", None)?)),
        Some(AttachCommand::Apply { file }) => {
            print(&show::apply(&ask("apply", Some(("learned", counts_of(file)?)))?))
        }
        Some(AttachCommand::Budget { size }) => {
            print(&show::budget(&ask("budget", Some(("bytes", size.bytes().into())))?))
        }
    }
}

/// The uses of experts in a file, as the process takes them: without times.
fn counts_of(file: &Path) -> Result<serde_json::Value, CliError> {
    let learned = LearnFile { mode: Reported::Update, ..files::read(file)? };
    Ok(serde_json::from_str(&learned.to_text()).expect("written as JSON"))
}

/// Prints what the process says each second, until Ctrl-C or its end.
fn top(process: &mut Process) -> Result<(), CliError> {
    /// Clears a terminal.
    const CLEAR: &str = "\x1b[H\x1b[2J";
    const EACH: Duration = Duration::from_secs(1);
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    let mut before = None;
    loop {
        let (report, at) = (process.ask("stats", None)?, Instant::now());
        let since = before.as_ref().map(|(report, time): &(_, Instant)| (report, (at - *time).as_secs_f64()));
        print(&format!("{clear}{}", show::stats(&report, since)))?;
        before = Some((report, at));
        std::thread::sleep(EACH);
        if signals::interrupted() {
            return Ok(());
        }
    }
}
