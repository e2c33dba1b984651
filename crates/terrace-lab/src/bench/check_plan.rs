//! Compares the plan's estimates with measurements.

use super::stats::Spread;
use serde::Serialize;
use std::fmt::Write;
use terrace_cli::report::RunReport;
use terrace_plan::parts::{Estimate, TermKind};
use terrace_store::StoreReport;

/// One estimate, and the measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The compared term.
    pub term: &'static str,
    /// The plan's estimate.
    pub estimate: f64,
    /// Median of the measured runs.
    pub measured: f64,
    /// `estimate / measured - 1`, in percent. `None` if the measurement is 0.
    pub error_percent: Option<f64>,
    /// True if the measurement lies in the plan's range; `None` without a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_range: Option<bool>,
}

/// Compares the estimates with Terrace's runs, of which the first is left out. `None` if the plan
/// has no estimates.
pub fn checks(runs: &[RunReport]) -> Option<Vec<Check>> {
    // The plan of the last run knows the length of the prompt.
    let plan = runs.last()?.plan.get("placement")?;
    // Of these runs' prompt, if a plan has it.
    let estimate = plan.get("given").or_else(|| plan.get("estimate"))?.clone();
    let estimate: Estimate = serde_json::from_value(estimate).ok()?;
    let mut checks = compare(&estimate, runs);
    if let Some(ranges) = estimate.ranges {
        for (check, range) in checks.iter_mut().zip([ranges.decode_tok_s, ranges.prefill_tok_s]) {
            check.in_range = Some(range.holds(check.measured));
        }
    }
    Some(checks)
}

/// Compares decode, prefill, and then the parts of a token.
fn compare(estimate: &Estimate, runs: &[RunReport]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |term, estimate: f64, measured: &dyn Fn(&RunReport) -> Option<f64>| {
        let values: Option<Vec<f64>> = runs.iter().skip(1).map(measured).collect();
        let Some(spread) = values.and_then(Spread::of) else { return };
        let measured = spread.median;
        let error_percent = (measured > 0.0).then(|| (estimate / measured - 1.0) * 100.0);
        checks.push(Check { term, estimate, measured, error_percent, in_range: None });
    };
    check("decode, tokens/s", estimate.decode_tok_s, &|run| Some(run.timings.decode_tps));
    check("prefill, tokens/s", estimate.prefill_tok_s, &|run| Some(run.timings.prompt_tps));
    check("per token, ms", 1e3 / estimate.decode_tok_s, &|run| Some(run.timings.decode_ms / passes(run)?));
    let streams = estimate.read_per_token.bytes() > 0;
    if !streams {
        return checks;
    }
    let part = |kind, beside| estimate.ms(move |term| term.kind == kind && term.beside == beside);
    let per_token = |run: &RunReport, of: fn(&StoreReport) -> f64| Some(of(&run.decode?) / passes(run)?);
    let read = estimate.read_per_token.bytes() as f64 / MIB;
    check("read, MiB", read, &|run| per_token(run, |store| store.bytes_read as f64 / MIB));
    check("reading, ms", part(TermKind::Reading, true), &|run| per_token(run, |store| store.io_busy_ms));
    check("computing experts, ms", part(TermKind::Experts, false), &|run| {
        per_token(run, |store| store.experts_ms)
    });
    check("computing the rest, ms", part(TermKind::Dense, false), &|run| {
        per_token(run, |store| store.dense_ms)
    });
    check("waiting, ms", part(TermKind::Waiting, false), &|run| per_token(run, |store| store.stall_ms));
    check("reading hidden, %", hidden(estimate) * 100.0, &|run| Some(run.decode?.overlap * 100.0));
    if let Some(hits) = estimate.hit_rate {
        check("hits, %", hits * 100.0, &|run| Some(run.decode?.hit_rate * 100.0));
    }
    checks
}

const MIB: f64 = 1048576.0;

/// Passes that decode: the first token is part of the prefill.
fn passes(run: &RunReport) -> Option<f64> {
    let passes = run.timings.decode_passes;
    (passes > 0).then_some(passes as f64)
}

/// Share of the reading time during which nothing waits.
fn hidden(estimate: &Estimate) -> f64 {
    let reading = estimate.ms(|term| term.kind == TermKind::Reading);
    let waiting = estimate.ms(|term| term.kind == TermKind::Waiting && !term.beside);
    if reading > 0.0 { (1.0 - waiting / reading).max(0.0) } else { 0.0 }
}

/// Formats the comparison as a table.
pub fn table(checks: &[Check]) -> String {
    let mut out =
        format!("\n{:<24} {:>11} {:>11} {:>8}\n", "plan against reality", "estimate", "measured", "error");
    for check in checks {
        let error = check.error_percent.map_or_else(|| "-".into(), |percent| format!("{percent:+.0} %"));
        let range = match check.in_range {
            Some(true) => "  in the range",
            Some(false) => "  out of the range",
            None => "",
        };
        let Check { term, estimate, measured, .. } = check;
        let _ = writeln!(out, "{term:<24} {estimate:>11.2} {measured:>11.2} {error:>8}{range}");
    }
    out
}
