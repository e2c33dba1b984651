//! Child processes, and the preparation of their runs.

use super::arguments::arguments;
use super::cap::MemoryCap;
use super::error::BenchError;
use crate::args::{EngineArgs, OnOff};
use crate::commands::bench::BenchArgs;
use crate::report::RunReport;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first index at which two runs differ, with the tokens of both.
pub fn first_difference(a: &[i32], b: &[i32]) -> Option<(usize, Option<i32>, Option<i32>)> {
    let len = a.len().max(b.len());
    (0..len).map(|i| (i, a.get(i).copied(), b.get(i).copied())).find(|(_, a, b)| a != b)
}

/// One side of the comparison.
pub struct Side {
    /// `terrace` or `stock`.
    pub name: &'static str,
    /// Whether stock llama.cpp repacks. `None` for Terrace.
    pub repack: Option<OnOff>,
    args: Vec<OsString>,
}

impl Side {
    /// Terrace, with the bench's options.
    pub fn terrace(args: &BenchArgs, model: &Path, prompt: &Path) -> Self {
        Self { name: "terrace", repack: None, args: arguments(&args.engine, args.n, model, prompt) }
    }

    /// Terrace, with these options.
    pub fn with(engine: &EngineArgs, n: u32, model: &Path, prompt: &Path) -> Self {
        Self { name: "terrace", repack: None, args: arguments(engine, n, model, prompt) }
    }

    /// Stock llama.cpp in the same binary.
    pub fn stock(args: &BenchArgs, model: &Path, prompt: &Path) -> Self {
        let mut engine = args.engine.clone();
        engine.words.forget("repack");
        engine.words.forget("verify");
        let mut all = arguments(&engine, args.n, model, prompt);
        all.extend(["--stock", "--stock-repack", args.baseline_repack.name()].map(OsString::from));
        Self { name: "stock", repack: Some(args.baseline_repack), args: all }
    }

    /// Sets the length of the prompt that estimates assume from now on.
    pub fn expect_prompt(&mut self, tokens: usize) {
        self.args.insert(1, tokens.max(1).to_string().into());
        self.args.insert(1, "--expected-prompt".into());
    }

    /// Runs once, to be measured.
    pub fn run(&self, cap: Option<&MemoryCap>) -> Result<RunReport, BenchError> {
        self.start(cap, "--no-timeline".into())
    }

    /// Runs once more, and writes the timeline to `path`.
    pub fn timeline(&self, cap: Option<&MemoryCap>, path: &Path) -> Result<RunReport, BenchError> {
        let mut option = OsString::from("--timeline=");
        option.push(path);
        self.start(cap, option)
    }

    fn start(&self, cap: Option<&MemoryCap>, timeline: OsString) -> Result<RunReport, BenchError> {
        // The running binary, even if the file was replaced in the meantime.
        let program = PathBuf::from("/proc/self/exe");
        let program = program.canonicalize().unwrap_or(program);
        let mut command = match cap {
            Some(cap) => cap.command(&program),
            None => Command::new(&program),
        };
        let output = command
            .arg(&self.args[0])
            .arg(timeline)
            .args(&self.args[1..])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| BenchError::Start { program: program.clone(), source })?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let line =
                stderr.lines().find_map(|l| l.strip_prefix("error: ")).or_else(|| stderr.lines().last());
            let reason = line.unwrap_or("it printed no error").to_owned();
            let hint = stderr.lines().find_map(|l| l.strip_prefix("hint: ")).map(String::from);
            return Err(BenchError::Failed {
                side: self.name,
                status: output.status.to_string(),
                reason,
                hint,
            });
        }
        // Warnings of a run concern its numbers.
        if !stderr.is_empty() {
            eprint!("{stderr}");
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|e| BenchError::NoReport { side: self.name, reason: e.to_string() })
    }
}

/// Empties the page cache, so that every byte is read from disk.
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
