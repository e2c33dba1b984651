//! The measurements, for people and for programs.

use super::Outcome;
use serde_json::{Value, json};
use std::fmt::Write;
use terrace_model::ByteSize;
use terrace_store::IoChoice;
use terrace_store::kept::IoSettings;
use terrace_store::tools::iobench::{Cache, Row};

/// Version of the JSON object.
const VERSION: u32 = 1;

/// Why other programs may measure less on the same disk.
const PAGES: &str = "buffers are in huge pages where the system grants them, as in a run; \
    into pages of 4 KiB (fio's default) a disk can read at half the rate\n";

/// A table per question, then the summary.
pub fn text(outcome: &Outcome) -> String {
    let Outcome { path, temporary, size, device, report, .. } = outcome;
    let what = if *temporary { "a temporary file in " } else { "" };
    let device = device.as_ref().map_or_else(|| "an unknown device".into(), ToString::to_string);
    let mut out = format!("{what}{} ({size}) on {device}\n", path.display());
    let _ = writeln!(
        out,
        "GB are 10^9 bytes; median [min - max] of {} rounds; latencies are from submission to completion",
        report.rounds
    );
    out.push_str(PAGES);
    let mut last = None;
    for each in &report.rows {
        let first = last.replace(each.case.question) != Some(each.case.question);
        let _ = writeln!(out, "{}", row(each, first));
    }
    out + &summary(outcome)
}

/// One row; the first row of a question follows the question and a header.
fn row(row: &Row, first: bool) -> String {
    let case = &row.case;
    let mut out = String::new();
    if first {
        let columns = ["engine", "mode", "order", "request", "depth", "GB/s", "p50 ms", "p99 ms", "cpu s/GB"];
        let [engine, mode, order, request, depth, rate, p50, p99, cpu] = columns;
        let _ = writeln!(
            out,
            "\n{}\n  {engine:<9}{mode:<10}{order:<12}{request:>10}{depth:>7}{rate:>20}{p50:>10}{p99:>10}{cpu:>10}",
            case.question
        );
    }
    let ms = |us: u32| format!("{:.2}", f64::from(us) / 1e3);
    let request = if case.adjacent > 1 {
        format!("{}x{}", case.adjacent, short(case.request_size))
    } else {
        short(case.request_size)
    };
    let _ = write!(
        out,
        "  {:<9}{:<10}{:<12}{request:>10}{:>7}{:>20}{:>10}{:>10}{:>10}",
        engine_name(case.engine),
        if case.direct { "direct" } else { "buffered" },
        case.pattern,
        case.queue_depth,
        format!("{:.2} [{:.2} - {:.2}]", row.gbps, row.gbps_min, row.gbps_max),
        ms(row.p50_us),
        ms(row.p99_us),
        row.cpu_s_per_gb.map_or_else(|| "-".into(), |cpu| format!("{cpu:.3}")),
    );
    match row.cache {
        Cache::Bypassed => {}
        Cache::Cold => out.push_str("  cold"),
        Cache::Warm => out.push_str("  from the page cache: not the device's rate"),
        Cache::Unknown => out.push_str("  possibly from the page cache"),
    }
    if let Some(gbps) = row.compute_gbps {
        let _ = write!(out, "  during computation at {gbps:.1} GB/s");
    }
    out
}

/// Notes and the recommended settings.
fn summary(outcome: &Outcome) -> String {
    let report = &outcome.report;
    let mut out = String::from("\n");
    if let Some(gbps) = report.compute_alone_gbps {
        let _ = writeln!(out, "computation alone: {gbps:.1} GB/s");
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let Some(settings) = &report.recommended else {
        out.push_str("no recommended settings: too few measurements\n");
        return out;
    };
    let IoSettings { engine, direct, request_size, queue_depth, gbps, coalesce_below, .. } = settings;
    let or = |text: Option<&str>| text.unwrap_or("not compared").to_owned();
    let _ = writeln!(out, "recommended");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<20}{value}");
    };
    line("engine", or(engine.map(engine_name)));
    line("direct", or(direct.map(|direct| if direct { "on" } else { "off" })));
    line("request size", request_size.to_string());
    line("requests in flight", queue_depth.to_string());
    line("scattered reads", format!("{gbps:.2} GB/s"));
    let pays = |size: &ByteSize| format!("faster up to {}", ByteSize(size.0 - 1));
    line("joining neighbours", coalesce_below.as_ref().map_or_else(|| "not faster".into(), pays));
    for reason in &report.reasons {
        let _ = writeln!(out, "  because: {reason}");
    }
    if let Ok(path) = &outcome.kept {
        let _ = writeln!(out, "saved for this device in {}", path.display());
    }
    out
}

/// Everything in one JSON object.
pub fn json(outcome: &Outcome) -> Value {
    let Outcome { path, temporary, size, device, report, kept } = outcome;
    let recommended = report.recommended.as_ref().map(|settings| {
        json!({
            "engine": settings.engine.map(engine_name),
            "direct": settings.direct,
            "request_size": settings.request_size,
            "queue_depth": settings.queue_depth,
            "gbps": settings.gbps,
            "coalesce_below": settings.coalesce_below,
            "because": report.reasons,
        })
    });
    json!({
        "version": VERSION,
        "path": path.to_string_lossy(),
        "temporary": temporary,
        "bytes": size,
        "device": device,
        "compute_alone_gbps": report.compute_alone_gbps,
        "rounds": report.rounds,
        "rows": report.rows,
        "notes": report.notes,
        "recommended": recommended,
        "kept_in": kept.as_ref().ok(),
        "not_kept_because": kept.as_ref().err(),
    })
}

fn engine_name(engine: IoChoice) -> &'static str {
    match engine {
        IoChoice::Uring => "io_uring",
        IoChoice::Pread => "pread",
        IoChoice::Auto => "auto",
    }
}

/// The size without a space.
fn short(size: ByteSize) -> String {
    size.to_string().replace(' ', "")
}
