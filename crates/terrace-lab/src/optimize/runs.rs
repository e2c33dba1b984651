//! The real runs of the search.

use super::knobs;
use super::search::{Outcome, Settings, Trials, Verdict};
use crate::bench::{BenchError, MemoryCap, Side, drop_page_cache, first_difference};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_cli::args::EngineArgs;
use terrace_cli::error::CliError;
use terrace_cli::report::RunReport;
use terrace_cli::term::say;
use terrace_cli::term::signals;

/// The result for one value, for programs.
#[derive(Debug, Serialize)]
pub struct Trial {
    pub settings: String,
    /// Median time of a run in milliseconds. `None` if none was measured.
    pub ms: Option<f64>,
    /// Median time of the best settings so far, in milliseconds.
    pub best_ms: f64,
    /// `better`, `no`, `unfit` or `over`.
    pub verdict: &'static str,
}

/// Runs child processes until the time is over.
pub struct Runs<'a> {
    args: &'a EngineArgs,
    n: u32,
    model: &'a Path,
    prompt: &'a Path,
    cap: Option<MemoryCap>,
    cold: bool,
    until: Instant,
    /// Duration of the longest run, the load included.
    longest: Duration,
    /// The tokens that every run must generate.
    tokens: Option<Vec<i32>>,
    /// Why the last run could not be used.
    unfit: String,
    /// Number of runs so far.
    pub count: usize,
    /// The values that were judged.
    pub trials: Vec<Trial>,
}

impl<'a> Runs<'a> {
    /// Prepares runs of `n` tokens that end before `until`.
    pub fn new(
        args: &'a EngineArgs,
        n: u32,
        (model, prompt): (&'a Path, &'a Path),
        (cap, cold): (Option<MemoryCap>, bool),
        until: Instant,
    ) -> Self {
        let cold = cold || cap.is_some();
        Self {
            args,
            n,
            model,
            prompt,
            cap,
            cold,
            until,
            longest: Duration::ZERO,
            tokens: None,
            unfit: String::new(),
            count: 0,
            trials: Vec::new(),
        }
    }

    /// The first run, with the defaults: a warm-up that shows what can be searched.
    ///
    /// # Errors
    /// The run failed.
    pub fn first(&mut self) -> Result<RunReport, CliError> {
        let report = self.start(&Settings::default())?;
        if signals::interrupted() {
            return Err(CliError::Interrupted);
        }
        let report = report?;
        self.tokens = Some(report.tokens.clone());
        Ok(report)
    }

    fn start(&mut self, settings: &Settings) -> Result<Result<RunReport, BenchError>, BenchError> {
        if self.cold {
            drop_page_cache()?;
        }
        let begin = Instant::now();
        let side = Side::with(&knobs::apply(self.args, settings), self.n, self.model, self.prompt);
        let report = signals::busy(|| side.run(self.cap.as_ref()));
        self.longest = self.longest.max(begin.elapsed());
        self.count += 1;
        Ok(report)
    }
}

impl Trials for Runs<'_> {
    type Error = CliError;

    fn run(&mut self, settings: &Settings) -> Result<Outcome, CliError> {
        if signals::interrupted() || Instant::now() + self.longest > self.until {
            return Ok(Outcome::Over);
        }
        let report = self.start(settings)?;
        if signals::interrupted() {
            return Ok(Outcome::Over);
        }
        match report {
            Ok(report) => {
                let expected = self.tokens.get_or_insert_with(|| report.tokens.clone());
                if let Some((at, ..)) = first_difference(expected, &report.tokens) {
                    self.unfit = format!("other tokens from token {at} on");
                    return Ok(Outcome::Unfit);
                }
                Ok(Outcome::Took(report.timings.prompt_ms + report.timings.decode_ms))
            }
            // Without a run of the defaults there is nothing to compare with.
            Err(error) if settings.0.is_empty() => Err(error.into()),
            Err(error) => {
                self.unfit = error.to_string();
                Ok(Outcome::Unfit)
            }
        }
    }

    fn judged(&mut self, settings: &Settings, time: Option<f64>, best: f64, verdict: Verdict) {
        let time_of = |ms: f64| format!("{:.2} s", ms / 1e3);
        let (name, words) = match verdict {
            Verdict::Better => ("better", "better".to_owned()),
            Verdict::No => ("no", "not better".to_owned()),
            Verdict::Unfit => ("unfit", std::mem::take(&mut self.unfit)),
            Verdict::Over => ("over", "not completed".to_owned()),
        };
        let ms = time.map_or_else(|| "-".to_owned(), time_of);
        say!("{settings}: {ms}, best so far {}: {words}", time_of(best));
        self.trials.push(Trial { settings: settings.to_string(), ms: time, best_ms: best, verdict: name });
    }
}
