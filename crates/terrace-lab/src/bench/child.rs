//! Child processes, and the preparation of their runs.

use super::arguments::{arguments, with_prompt};
use super::baseline::{Stock, StockSplit};
use super::cap::MemoryCap;
use super::error::BenchError;
use crate::bench::BenchArgs;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use terrace_cli::args::EngineArgs;
use terrace_cli::no_effect;
use terrace_cli::report::RunReport;
use terrace_cli::term::say;
use terrace_platform::input_file::{self, MAX_TEXT};
use terrace_platform::memory;
use terrace_platform::process::running_program;

/// The first index at which two runs differ, with the tokens of both.
pub fn first_difference(a: &[i32], b: &[i32]) -> Option<(usize, Option<i32>, Option<i32>)> {
    let len = a.len().max(b.len());
    (0..len).map(|i| (i, a.get(i).copied(), b.get(i).copied())).find(|(_, a, b)| a != b)
}

/// One side of the comparison.
pub struct Side {
    /// `terrace`, or `stock` with what it puts on devices.
    pub name: String,
    /// Repacking by stock llama.cpp. `None` for Terrace.
    pub repack: Option<bool>,
    args: Vec<OsString>,
}

/// Output of a run besides its report.
#[derive(Clone, Copy)]
enum Extra<'a> {
    Nothing,
    Timeline(&'a Path),
    /// The same, of which the user need not know.
    OwnTimeline(&'a Path),
    Logits(&'a Path),
}

impl Side {
    /// Terrace, with the bench's options.
    pub fn terrace(args: &BenchArgs, model: &Path, prompt: &Path) -> Self {
        let mut engine = with_prompt(args);
        args.drafts.tell(&mut engine);
        Self::with(&engine, args.n, model, prompt)
    }

    /// Terrace, with these options.
    pub fn with(engine: &EngineArgs, n: u32, model: &Path, prompt: &Path) -> Self {
        Self { name: "terrace".into(), repack: None, args: arguments(engine, n, model, prompt) }
    }

    /// Stock llama.cpp in the same binary, generating `n` tokens.
    pub fn stock(args: &BenchArgs, stock: &Stock, n: u32, model: &Path, prompt: &Path) -> Self {
        let mut engine = with_prompt(args);
        engine.words.forget("repack");
        engine.words.forget("verify");
        engine.words.forget("replica");
        engine.presets.forget("draft");
        engine.words.set("draft", "off");
        let mut all = arguments(&engine, n, model, prompt);
        let without_effect = no_effect::in_stock();
        let idle = |word: &OsString| {
            let name = word.to_str().and_then(|word| word.strip_prefix("--")?.split('=').next());
            name.is_some_and(|name| without_effect.iter().any(|idle| idle == name))
        };
        all.retain(|word| !idle(word));
        let repack = if args.baseline_repack { "on" } else { "off" };
        all.extend(["--stock", "--stock-repack", repack].map(OsString::from));
        if let Some(StockSplit { layers, cpu_moe }) = stock.split {
            all.push(format!("--stock-layers={layers}").into());
            all.push(format!("--stock-cpu-moe={cpu_moe}").into());
        }
        Self { name: stock.name.clone(), repack: Some(args.baseline_repack), args: all }
    }

    /// Has plans made for prompts of this length from now on, unless the user stated one. Stock runs have no plan.
    pub fn expect_prompt(&mut self, tokens: usize) {
        let option = "--expect-prompt=";
        if self.repack.is_some() || self.args.iter().any(|word| word.to_string_lossy().starts_with(option)) {
            return;
        }
        self.args.insert(1, format!("{option}{}", tokens.max(1)).into());
    }

    /// Runs once, to be measured.
    pub fn run(&self, cap: Option<&MemoryCap>) -> Result<RunReport, BenchError> {
        self.start(cap, Extra::Nothing)
    }

    /// Runs once, and returns the logits after the prompt as well.
    pub fn run_with_logits(&self, cap: Option<&MemoryCap>) -> Result<(RunReport, Vec<f32>), BenchError> {
        let file = tempfile::NamedTempFile::new()
            .map_err(|source| BenchError::Logits { path: std::env::temp_dir(), source })?;
        let report = self.start(cap, Extra::Logits(file.path()))?;
        let bytes = input_file::read_regular(file.path(), MAX_TEXT)
            .map_err(|source| BenchError::Logits { path: file.path().to_owned(), source })?;
        Ok((report, bytes.as_chunks().0.iter().map(|&logit| f32::from_le_bytes(logit)).collect()))
    }

    /// Runs once more, and writes the timeline to `path`.
    pub fn timeline(&self, cap: Option<&MemoryCap>, path: &Path) -> Result<RunReport, BenchError> {
        self.start(cap, Extra::Timeline(path))
    }

    /// Runs once more, and writes the timeline to a file of the bench's own.
    pub fn own_timeline(&self, cap: Option<&MemoryCap>, path: &Path) -> Result<RunReport, BenchError> {
        self.start(cap, Extra::OwnTimeline(path))
    }

    fn start(&self, cap: Option<&MemoryCap>, extra: Extra<'_>) -> Result<RunReport, BenchError> {
        let file = |option: &str, path: &Path| {
            let mut option = OsString::from(option);
            option.push(path);
            option
        };
        let mut extras = vec![match extra {
            Extra::Timeline(path) | Extra::OwnTimeline(path) => file("--timeline=", path),
            _ => "--no-timeline".into(),
        }];
        if let Extra::Logits(path) = extra {
            extras.push(file("--save-last-logits=", path));
        }
        // The running binary, even if the file was replaced in the meantime.
        let program = running_program();
        let program = program.canonicalize().unwrap_or(program);
        let mut command = match cap {
            Some(cap) => cap.command(&program),
            None => Command::new(&program),
        };
        let output = command
            .arg(&self.args[0])
            .args(extras)
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
                side: self.name.clone(),
                status: output.status.to_string(),
                reason,
                hint,
            });
        }
        let is_own = matches!(extra, Extra::OwnTimeline(_));
        say(stderr.lines().filter(|line| !(is_own && line.starts_with("timeline: "))));
        serde_json::from_slice(&output.stdout)
            .map_err(|e| BenchError::NoReport { side: self.name.clone(), reason: e.to_string() })
    }
}

/// Prints the warnings of a run, which concern its numbers; those of earlier runs not again.
fn say<'a>(lines: impl Iterator<Item = &'a str>) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    for line in lines.filter(|line| said.insert((*line).to_owned())) {
        say!("{line}");
    }
}

/// Empties the page cache, so that every byte is read from disk.
pub fn drop_page_cache() -> Result<(), BenchError> {
    let path = PathBuf::from(memory::DROP_CACHES);
    memory::drop_page_cache().map_err(|source| BenchError::Prepare { what: "--cold", path, source })
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
