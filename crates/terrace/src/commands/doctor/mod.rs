//! `terrace doctor`: finds what keeps Terrace from running on this machine, or from running well,
//! and what to do about it.
//!
//! One file per group of checks. Each gathers facts, and judges them in a function that depends on
//! nothing else.

mod args;
mod devices;
mod finding;
mod io;
mod kept;
mod memory;
mod processor;
mod storage;

pub use args::DoctorArgs;

use crate::backends;
use finding::{Finding, Level};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_cli::term::{print, width};

/// A group of checks.
trait Checks: Sized {
    /// Gathers the facts; models are at `place`.
    fn gather(place: &Path) -> Self;

    /// Judges the facts.
    fn judge(&self) -> Vec<Finding>;
}

fn examine<C: Checks>(place: &Path) -> Vec<Finding> {
    C::gather(place).judge()
}

/// Examines the machine and prints one line per finding. Returns `false` if runs are impossible.
///
/// # Errors
/// The place does not exist.
pub fn doctor(args: &DoctorArgs) -> Result<bool, CliError> {
    let place = match &args.place {
        // A directory is a place, not a model.
        Some(path) if Path::new(path).exists() => PathBuf::from(path),
        Some(model) => source::resolve(Some(model))?,
        None => std::env::current_dir().map_err(CliError::io("the current directory"))?,
    };
    // What is refused is a finding.
    backends::examine()?;
    std::fs::metadata(&place).map_err(CliError::io(place.display().to_string()))?;
    let groups = [
        examine::<processor::Processor>,
        examine::<memory::Memory>,
        examine::<devices::Devices>,
        examine::<io::Io>,
        examine::<storage::Storage>,
        examine::<kept::Kept>,
    ];
    let findings: Vec<Finding> = groups.iter().flat_map(|group| group(&place)).collect();
    print(&if args.json { json(&place, &findings) } else { text(&findings) })?;
    Ok(findings.iter().all(|finding| finding.level != Level::Bad))
}

fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { check, level, text, advice } in findings {
        let advice = advice.as_ref().map_or_else(String::new, |advice| format!(": {advice}"));
        let _ = writeln!(out, "{level:<5}{check:<18}{text}{advice}");
    }
    // What follows a break stands under the text.
    width::wrapped(&out, width::of_stdout(), &" ".repeat(23))
}

fn json(place: &Path, findings: &[Finding]) -> String {
    let report = serde_json::json!({
        "version": 1,
        "place": place.display().to_string(),
        "findings": findings,
    });
    serde_json::to_string_pretty(&report).expect("findings are plain data")
}
