//! Child processes and their preparation.

use super::arguments::arguments;
use super::cap::MemoryCap;
use crate::cli::{BenchArgs, EngineArgs, OnOff};
use crate::report::RunReport;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why there are no numbers.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A run could not be started.
    #[error("cannot start {}: {source}", .program.display())]
    Start {
        /// This binary.
        program: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A run failed.
    #[error("the {side} run ended with {status}: {reason}")]
    Failed {
        /// `terrace` or `stock`.
        side: &'static str,
        /// Exit code or signal.
        status: String,
        /// Its own error line.
        reason: String,
        /// Its own hint.
        hint: Option<String>,
    },
    /// A run printed something else than a report.
    #[error("the {side} run printed no report: {reason}")]
    NoReport {
        /// `terrace` or `stock`.
        side: &'static str,
        /// Why it is none.
        reason: String,
    },
    /// Runs that should be equal are not.
    #[error(
        "the runs do not agree, so their times mean nothing: {side} run {run} has {} as token {at}, terrace run 0 has {}",
        token(*got), token(*expected)
    )]
    Disagree {
        /// `terrace` or `stock`.
        side: String,
        /// Which of its runs, 0 to warm up.
        run: usize,
        /// The first token that differs, from 0.
        at: usize,
        /// What the first run has there.
        expected: Option<i32>,
        /// What this one has.
        got: Option<i32>,
        /// Whether the baseline was allowed other rounding.
        repacked: bool,
    },
    /// The machine does not let itself be prepared.
    #[error("{what}: {}: {source}", .path.display())]
    Prepare {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is no control group to limit memory with.
    #[error("--memory-cap: no memory control group is mounted under /sys/fs/cgroup")]
    NoControlGroup,
}

fn token(token: Option<i32>) -> String {
    token.map_or_else(|| "the end".into(), |t| t.to_string())
}

impl BenchError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Failed { hint, .. } => hint.clone(),
            Self::Disagree { repacked: true, .. } => {
                Some("repacked weights round differently: use --baseline-repack off".into())
            }
            Self::Disagree { .. } => Some("this is a defect in terrace itself; please report it".into()),
            Self::Prepare { .. } | Self::NoControlGroup => {
                Some("--cold and --memory-cap need root, and control groups that may be written".into())
            }
            _ => None,
        }
    }
}

/// The first index at which two runs differ, with what each has there.
pub fn first_difference(a: &[i32], b: &[i32]) -> Option<(usize, Option<i32>, Option<i32>)> {
    let len = a.len().max(b.len());
    (0..len).map(|i| (i, a.get(i).copied(), b.get(i).copied())).find(|(_, a, b)| a != b)
}

/// One of the things compared.
pub struct Side {
    /// `terrace` or `stock`.
    pub name: &'static str,
    /// Of stock: whether it repacks.
    pub repack: Option<OnOff>,
    args: Vec<OsString>,
}

impl Side {
    /// Terrace, with the options of the bench.
    pub fn terrace(args: &BenchArgs, model: &Path, prompt: &Path) -> Self {
        Self { name: "terrace", repack: None, args: arguments(&args.engine, args.n, model, prompt) }
    }

    /// Terrace, with these options.
    pub fn with(engine: &EngineArgs, n: u32, model: &Path, prompt: &Path) -> Self {
        Self { name: "terrace", repack: None, args: arguments(engine, n, model, prompt) }
    }

    /// Stock llama.cpp in the same binary.
    pub fn stock(args: &BenchArgs, model: &Path, prompt: &Path) -> Self {
        let engine = EngineArgs { repack: false, ..args.engine.clone() };
        let mut all = arguments(&engine, args.n, model, prompt);
        all.extend(["--stock", "--stock-repack", args.baseline_repack.name()].map(OsString::from));
        Self { name: "stock", repack: Some(args.baseline_repack), args: all }
    }

    /// From now on estimates are for a prompt of so many tokens.
    pub fn expect_prompt(&mut self, tokens: usize) {
        self.args.insert(1, tokens.max(1).to_string().into());
        self.args.insert(1, "--expected-prompt".into());
    }

    /// Runs it once, to be measured.
    pub fn run(&self, cap: Option<&MemoryCap>) -> Result<RunReport, BenchError> {
        self.start(cap, "--no-profile".into())
    }

    /// Runs it once more, to have its timeline in `path`.
    pub fn profile(&self, cap: Option<&MemoryCap>, path: &Path) -> Result<RunReport, BenchError> {
        let mut option = OsString::from("--profile=");
        option.push(path);
        self.start(cap, option)
    }

    fn start(&self, cap: Option<&MemoryCap>, profile: OsString) -> Result<RunReport, BenchError> {
        // The running binary, even if the file was replaced meanwhile.
        let program = PathBuf::from("/proc/self/exe");
        let program = program.canonicalize().unwrap_or(program);
        let mut command = match cap {
            Some(cap) => cap.command(&program),
            None => Command::new(&program),
        };
        let output = command
            .arg(&self.args[0])
            .arg(profile)
            .args(&self.args[1..])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| BenchError::Start { program: program.clone(), source })?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let line =
                stderr.lines().find_map(|l| l.strip_prefix("error: ")).or_else(|| stderr.lines().last());
            let reason = line.unwrap_or("it gave no reason").to_owned();
            let hint = stderr.lines().find_map(|l| l.strip_prefix("hint: ")).map(String::from);
            return Err(BenchError::Failed {
                side: self.name,
                status: output.status.to_string(),
                reason,
                hint,
            });
        }
        // What a run warns of concerns its numbers.
        if !stderr.is_empty() {
            eprint!("{stderr}");
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|e| BenchError::NoReport { side: self.name, reason: e.to_string() })
    }
}

/// Empties the page cache, so that every byte comes from the disk.
pub fn drop_page_cache() -> Result<(), BenchError> {
    let path = PathBuf::from("/proc/sys/vm/drop_caches");
    rustix::fs::sync();
    std::fs::write(&path, "1\n").map_err(|source| BenchError::Prepare { what: "--cold", path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_where_they_begin() {
        assert_eq!(first_difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(first_difference(&[1, 2, 3], &[1, 5, 3]), Some((1, Some(2), Some(5))));
        assert_eq!(first_difference(&[1, 2], &[1]), Some((1, Some(2), None)));
        assert_eq!(first_difference(&[], &[7]), Some((0, None, Some(7))));
    }
}
