//! `terrace perplexity --kld`: the figures, as llama-perplexity prints them.

use std::fmt::Write as _;
use terrace_eval::{DivergenceProgress, DivergenceReport, DivergenceSummary, Estimate, Percentiles};

/// The header above the running values.
const HEADER: &str = "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              \
                          Δp RMS            Same top p";

/// With fewer scored tokens, llama-perplexity prints no statistics.
const ENOUGH: usize = 100;

/// One line of running values; the first line follows a header.
pub fn running(progress: &DivergenceProgress) -> String {
    let DivergenceSummary { perplexity, ln_ratio, kld, delta_p_rms, same_top, .. } = progress.so_far;
    let header = if progress.done == 1 { format!("\n{HEADER}\n") } else { String::new() };
    format!(
        "{header}{:4}    {}    {}    {}    {} %    {} %",
        progress.done,
        pair(perplexity, 9, 4),
        pair(ln_ratio, 10, 5),
        pair(kld, 10, 5),
        pair(percent(delta_p_rms), 6, 3),
        pair(percent(same_top), 6, 3),
    )
}

/// All figures.
pub fn statistics(report: &DivergenceReport) -> String {
    let all = &report.summary;
    if all.scored < ENOUGH {
        // The running values are all there is.
        return String::new();
    }
    let mut out = String::from("\n");
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line("====== Perplexity statistics ======".into());
    line(format!("Mean PPL(Q)                   : {}", pair(all.perplexity, 10, 6)));
    line(format!("Mean PPL(base)                : {}", pair(all.base_perplexity, 10, 6)));
    let correlation = all.correlation.map_or("      -".into(), |c| format!("{:6.2}%", 100.0 * c));
    line(format!("Cor(ln(PPL(Q)), ln(PPL(base))): {correlation}"));
    line(format!("Mean ln(PPL(Q)/PPL(base))     : {}", pair(all.ln_ratio, 10, 6)));
    line(format!("Mean PPL(Q)/PPL(base)         : {}", pair(all.ratio, 10, 6)));
    line(format!("Mean PPL(Q)-PPL(base)         : {}", pair(all.difference, 10, 6)));
    line(String::new());
    line("====== KL divergence statistics ======".into());
    line(format!("Mean    KLD: {}", pair(all.kld, 10, 6)));
    for (name, value) in named(&report.kld_percentiles, false) {
        line(format!("{name} KLD: {value:10.6}"));
    }
    line(String::new());
    line("====== Token probability statistics ======".into());
    line(format!("Mean    Δp: {} %", pair_of(percent(all.delta_p), 6, 5, 3)));
    for (name, value) in named(&report.delta_p_percentiles, true) {
        line(format!("{name} Δp: {:6.3}%", 100.0 * value));
    }
    line(format!("RMS Δp    : {} %", pair_of(percent(all.delta_p_rms), 6, 5, 3)));
    line(format!("Same top p: {} %", pair_of(percent(all.same_top), 6, 5, 3)));
    out
}

/// Percentiles in descending order, with llama-perplexity's names; the quartiles only where it
/// prints them.
fn named(p: &Percentiles, quartiles: bool) -> Vec<(&'static str, f64)> {
    let all = [
        ("Maximum", p.maximum),
        ("99.9%  ", p.p99_9),
        ("99.0%  ", p.p99),
        ("95.0%  ", p.p95),
        ("90.0%  ", p.p90),
        ("75.0%  ", p.p75),
        ("Median ", p.median),
        ("25.0%  ", p.p25),
        ("10.0%  ", p.p10),
        (" 5.0%  ", p.p5),
        (" 1.0%  ", p.p1),
        (" 0.1%  ", p.p0_1),
        ("Minimum", p.minimum),
    ];
    let kept = |name: &str| quartiles || !matches!(name, "75.0%  " | "25.0%  ");
    all.into_iter().filter(|(name, _)| kept(name)).collect()
}

fn percent(Estimate { value, error }: Estimate) -> Estimate {
    Estimate { value: 100.0 * value, error: error.map(|error| 100.0 * error) }
}

fn pair(estimate: Estimate, width: usize, digits: usize) -> String {
    pair_of(estimate, width, width, digits)
}

/// `1.2345 ± 0.0123`; without an error, it is 0.
fn pair_of(Estimate { value, error }: Estimate, width: usize, of_error: usize, digits: usize) -> String {
    format!("{value:width$.digits$} ± {:of_error$.digits$}", error.unwrap_or(0.0))
}
