//! One measurement, and its output.

use super::format::Format;
use super::{ChunkBar, PerplexityArgs, divergence, hellaswag};
use serde::Serialize;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::report::{hot_experts, store_report};
use terrace_cli::term::say;
use terrace_cli::term::{print, signals};
use terrace_engine::{Engine, LossyUsed, PlanReport, ReloadReport};
use terrace_eval::{
    BaseLogits, Chunks, DivergenceSummary, EvalError, HellaSwagTask, LogitsFile, PerplexityOptions,
    PerplexityProgress, PerplexityReport, perplexity, save_logits,
};
use terrace_lanes::HotExpertsReport;
use terrace_store::StoreReport;

/// Measures once. Gets the number of the measurement, from 0, and what was reloaded before it.
pub type Measure<'a> = dyn FnMut(&mut Engine, usize, &ReloadReport) -> Result<Figure, CliError> + 'a;

/// Kind of measurement.
pub enum Task {
    /// Perplexity. The file, if there is one, gets the predictions of one measurement.
    Perplexity(Option<LogitsFile>),
    /// Divergence of the predictions from a base.
    Divergence(Box<BaseLogits>),
    /// Accuracy on HellaSwag tasks.
    HellaSwag(Vec<HellaSwagTask>),
}

/// Result of a measurement, to compare it with another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The perplexity, the divergence or the accuracy.
    pub value: f64,
    /// Everything that it is computed from.
    parts: Vec<f64>,
}

impl Figure {
    /// Returns true if the two are the same to the last bit.
    pub fn is(&self, other: &Self) -> bool {
        self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(a, b)| a.to_bits() == b.to_bits())
    }
}

/// A measurement that can be repeated.
pub struct Measurement<'a> {
    /// The options.
    pub args: &'a PerplexityArgs,
    /// The model's file.
    pub model: PathBuf,
    /// The tokens of the text.
    pub tokens: Vec<i32>,
    /// Division of the text into chunks.
    pub options: PerplexityOptions,
    /// Kind of measurement.
    pub task: Task,
    /// Form of the output.
    pub format: Format,
}

/// The number of a measurement, and what was reloaded before it.
type Pass<'a> = Option<(usize, &'a ReloadReport)>;

/// Output of `--json`.
#[derive(Serialize)]
struct Report<'a, M, R> {
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    model: &'a PathBuf,
    #[serde(serialize_with = "terrace_model::path_text::serialize_option")]
    text: Option<&'a PathBuf>,
    /// The base that the model is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "terrace_model::path_text::serialize_option")]
    base: Option<&'a Path>,
    /// The file of the log probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "terrace_model::path_text::serialize_option")]
    logits: Option<&'a Path>,
    /// The number of the measurement, if there can be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<usize>,
    /// The reload before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reloaded: Option<&'a ReloadReport>,
    mode: &'a str,
    #[serde(flatten)]
    result: &'a M,
    /// The estimate after each chunk or task.
    running: &'a [R],
    plan: &'a PlanReport,
    /// Lossy settings; `None` if the model is computed exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    lossy: Option<LossyUsed>,
    store: Option<StoreReport>,
    /// Copies on devices, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_experts: Option<HotExpertsReport>,
    peak_rss_bytes: u64,
}

impl Measurement<'_> {
    /// Measures, and prints the results.
    ///
    /// # Errors
    /// The engine or stdout fails; [`CliError::Interrupted`] after Ctrl-C.
    pub fn run(&mut self, engine: &mut Engine, pass: Pass<'_>) -> Result<Figure, CliError> {
        if pass.is_some_and(|(number, _)| number > 0) {
            self.read_again()?;
        }
        match &mut self.task {
            Task::Perplexity(save) => {
                let save = save.take();
                self.perplexity(engine, save, pass)
            }
            Task::Divergence(_) => self.divergence(engine, pass),
            Task::HellaSwag(_) => self.hellaswag(engine, pass),
        }
    }

    /// Reads the base again: another program may have replaced it.
    fn read_again(&mut self) -> Result<(), CliError> {
        if let Task::Divergence(base) = &mut self.task {
            **base = BaseLogits::open(base.path())?;
            if self.args.file.is_none() {
                self.tokens = base.tokens().to_vec();
            }
        }
        Ok(())
    }

    fn perplexity(
        &self,
        engine: &mut Engine,
        save: Option<LogitsFile>,
        pass: Pass<'_>,
    ) -> Result<Figure, CliError> {
        let (tokens, options, format) = (&self.tokens, &self.options, self.format);
        let mut running = Vec::new();
        let mut bar = ChunkBar::new();
        if !self.args.json {
            let chunks = Chunks::of(tokens.len(), options.context, options.chunks)?;
            format.begin(chunks.count, chunks.context, self.args.engine.placement.context.batch);
        }
        let mut each = |progress: &PerplexityProgress| {
            running.push(progress.perplexity);
            self.time_left(progress.done, progress.chunks, progress.seconds);
            say(self.args, &bar, || format.running(progress.done, progress.perplexity));
            bar.show(progress, "evaluating");
            go_on()
        };
        let report = measured(|| match save {
            Some(file) => save_logits(engine, tokens, options, file, &mut each),
            None => perplexity(engine, tokens, options, &mut each),
        });
        bar.end();
        format.end_running(!self.args.json && !running.is_empty())?;
        let report = report?;
        self.end(engine, pass, &report, &running, || {
            pace(report.chunks, report.context, report.seconds, report.tokens_per_second);
            format!("Final estimate: {}", estimate(&report))
        })?;
        Ok(Figure { value: report.perplexity, parts: report.nll })
    }

    fn divergence(&mut self, engine: &mut Engine, pass: Pass<'_>) -> Result<Figure, CliError> {
        let Self { args, tokens, options, task: Task::Divergence(base), format, .. } = self else {
            unreachable!("the task is the divergence from a base");
        };
        let (args, format) = (*args, *format);
        let mut running = Vec::new();
        let mut bar = ChunkBar::new();
        let report = measured(|| {
            terrace_eval::divergence(engine, tokens, options, base, &mut |progress| {
                running.push(progress.so_far);
                time_left(args, format, progress.done, progress.chunks, progress.seconds);
                say(args, &bar, || print(&divergence::running(progress)));
                let message = format!("comparing, KLD {:.5}", progress.so_far.kld.value);
                bar.at(progress.done, progress.chunks, message);
                go_on()
            })
        });
        bar.end();
        let report = report?;
        self.end(engine, pass, &report, &running, || {
            pace(report.chunks, report.context, report.seconds, report.tokens_per_second);
            divergence::statistics(&report)
        })?;
        let DivergenceSummary { kld, perplexity, delta_p, .. } = report.summary;
        Ok(Figure { value: kld.value, parts: vec![kld.value, perplexity.value, delta_p.value] })
    }

    fn hellaswag(&self, engine: &mut Engine, pass: Pass<'_>) -> Result<Figure, CliError> {
        let Task::HellaSwag(tasks) = &self.task else { unreachable!("the task is HellaSwag") };
        let mut running = Vec::new();
        let mut bar = ChunkBar::over("task");
        let report = measured(|| {
            terrace_eval::hellaswag(engine, tasks, &mut |progress| {
                let score = progress.score;
                running.push(score);
                self.time_left(score.tasks, progress.tasks, progress.seconds);
                say(self.args, &bar, || print(&hellaswag::running(&score)));
                let message = format!("choosing, {:.2} % correct", 100.0 * score.accuracy);
                bar.at(score.tasks, progress.tasks, message);
                go_on()
            })
        });
        bar.end();
        let report = report?;
        self.end(engine, pass, &report, &running, || {
            let (seconds, rate) = (report.seconds, report.tokens_per_second);
            say!(
                "{} tasks, {} tokens in {seconds:.1} s, {rate:.1} tokens/s",
                report.score.tasks,
                report.tokens
            );
            String::new()
        })?;
        Ok(Figure { value: report.score.accuracy, parts: vec![report.score.correct as f64] })
    }

    fn time_left(&self, done: usize, of: usize, seconds: f64) {
        time_left(self.args, self.format, done, of, seconds);
    }

    /// Prints the results: everything as JSON, or `text`.
    fn end<M: Serialize, R: Serialize>(
        &self,
        engine: &Engine,
        pass: Pass<'_>,
        result: &M,
        running: &[R],
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        if !self.args.json {
            return match text() {
                text if text.is_empty() => Ok(()),
                text => print(&text),
            };
        }
        let report = Report {
            model: &self.model,
            text: self.args.file.as_ref(),
            base: self.args.kld.as_deref(),
            logits: self.args.save_logits.as_deref(),
            pass: pass.map(|(number, _)| number),
            reloaded: pass.map(|(_, reloaded)| reloaded),
            mode: &engine.plan().mode,
            result,
            running,
            plan: engine.plan(),
            lossy: LossyUsed::of(engine.plan()),
            store: store_report(engine),
            hot_experts: hot_experts(engine),
            peak_rss_bytes: terrace_host::peak_rss().bytes(),
        };
        print(&serde_json::to_string(&report).expect("numbers are plain data"))
    }
}

/// Prints a line of running values, unless `--json` asks for one object.
fn say(args: &PerplexityArgs, bar: &ChunkBar, line: impl FnOnce() -> Result<(), CliError>) {
    if !args.json {
        bar.suspend(line);
    }
}

/// Prints the expected duration after the first chunk or task, where no progress bar shows it.
fn time_left(args: &PerplexityArgs, format: Format, done: usize, of: usize, seconds: f64) {
    if done == 1 && of > 1 && !args.json && !std::io::stderr().is_terminal() {
        format.time_left(of, seconds);
    }
}

/// Runs work that Ctrl-C can interrupt.
///
/// # Errors
/// The engine fails; [`CliError::Interrupted`] after Ctrl-C.
fn measured<T>(work: impl FnOnce() -> Result<T, EvalError>) -> Result<T, CliError> {
    Ok(signals::busy(work)?)
}

fn go_on() -> ControlFlow<()> {
    if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn pace(chunks: usize, context: usize, seconds: f64, rate: f64) {
    say!("{chunks} chunks of {context} tokens in {seconds:.1} s, {rate:.1} tokens/s");
}

/// `PPL = 4.1234 +/- 0.01234`.
fn estimate(report: &PerplexityReport) -> String {
    match report.error {
        Some(error) => format!("PPL = {:.4} +/- {error:.5}", report.perplexity),
        None => format!("PPL = {:.4}", report.perplexity),
    }
}
