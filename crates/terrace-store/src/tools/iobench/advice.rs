//! Recommending settings by the rows: a pure decision.

use super::cases::{Case, Question};
use super::report::{Cache, Row};
use crate::choice::IoChoice;
use crate::kept::{IoSettings, MeasuredBy};
use crate::limits::{DEFAULT_DEPTH, DEFAULT_REQUEST};
use crate::measure::{Pattern, Sample, choose};
use std::collections::BTreeMap;
use terrace_model::ByteSize;

/// Settings within this share of the fastest count as equally good.
const SLACK: f64 = 0.05;
/// Smaller requests are only for tables that are read by row, whatever rate they reach.
const LEAST_REQUEST: ByteSize = ByteSize::kib(64);
/// `pread` must be this much faster, because it costs threads.
const PREAD_GAIN: f64 = 1.10;
/// The page cache must be this much faster, because it costs memory that is not counted.
const BUFFERED_GAIN: f64 = 1.25;
/// Joining adjacent reads must be this much faster, because it costs code, and room that fits all
/// of them.
const COALESCE_GAIN: f64 = 1.10;

/// Returns the recommended settings, with reasons; `None` if the rows do not allow a
/// recommendation.
pub(super) fn advise(rows: &[Row]) -> Option<(IoSettings, Vec<String>)> {
    let mut reasons = Vec::new();
    let direct = direct(rows, &mut reasons);
    let found = |engine| choose(&samples(rows, engine, direct), (DEFAULT_REQUEST, DEFAULT_DEPTH), SLACK);
    let (uring, pread) = (found(IoChoice::Uring), found(IoChoice::Pread));
    let (engine, best) = match (uring, pread) {
        (Some(uring), Some(pread)) => {
            let faster = pread.gbps > PREAD_GAIN * uring.gbps;
            reasons.push(format!("io_uring {:.2} GB/s, pread {:.2} GB/s", uring.gbps, pread.gbps));
            if faster { (Some(IoChoice::Pread), pread) } else { (Some(IoChoice::Uring), uring) }
        }
        // It is not known which engine is faster.
        (one, other) => (None, one.or(other)?),
    };
    let Sample { request_size, queue_depth, gbps } = best;
    reasons.push(format!(
        "{queue_depth} requests of {request_size} in flight: within {:.0} % of the fastest scattered reads",
        SLACK * 100.0
    ));
    let coalesce_below = coalesce_below(rows, &mut reasons);
    let direct = direct_was_compared(rows).then_some(direct);
    let by = MeasuredBy::Iobench;
    Some((IoSettings { engine, direct, request_size, queue_depth, gbps, coalesce_below, by }, reasons))
}

/// Returns the rates of an engine by request size and depth.
fn samples(rows: &[Row], engine: IoChoice, direct: bool) -> Vec<Sample> {
    let of = |row: &&Row| {
        let Case { question, pattern, request_size, .. } = row.case;
        let asks = match question {
            Question::RequestSize | Question::Depth => true,
            Question::Buffered => row.cache == Cache::Cold,
            Question::Compute | Question::Coalescing => false,
        };
        // The size of an expert is not a setting: experts of other models have other sizes.
        let settable = request_size >= LEAST_REQUEST && request_size.0.is_power_of_two();
        asks && settable
            && pattern == Pattern::Scattered
            && (row.case.engine, row.case.direct) == (engine, direct)
    };
    // Combinations that were measured twice count with their mean.
    let mut rates: BTreeMap<(ByteSize, u32), Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(of) {
        rates.entry((row.case.request_size, row.case.queue_depth)).or_default().push(row.gbps);
    }
    let mean = |rates: Vec<f64>| rates.iter().sum::<f64>() / rates.len() as f64;
    let sample =
        |((request_size, queue_depth), rates)| Sample { request_size, queue_depth, gbps: mean(rates) };
    rates.into_iter().map(sample).collect()
}

fn direct_was_compared(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.case.question == Question::Buffered && row.cache == Cache::Cold)
        && rows.iter().any(|row| row.case.direct)
}

/// Returns whether reads should be direct: unless a cold page cache is clearly faster, in pairs
/// that differ in nothing else.
fn direct(rows: &[Row], reasons: &mut Vec<String>) -> bool {
    if !rows.iter().any(|row| row.case.direct) {
        return false;
    }
    let cold = rows.iter().filter(|row| {
        row.case.question == Question::Buffered
            && row.cache == Cache::Cold
            && row.case.pattern == Pattern::Scattered
            && row.case.request_size >= ByteSize::kib(512)
    });
    let mut ratios: Vec<f64> = cold
        .filter_map(|buffered| {
            let twin = Case { question: Question::RequestSize, direct: true, ..buffered.case };
            let direct = rows.iter().find(|row| row.case == twin)?;
            (direct.gbps > 0.0).then(|| buffered.gbps / direct.gbps)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let Some(median) = ratios.get(ratios.len() / 2) else {
        reasons.push("direct reads, which were not compared with a cold page cache".into());
        return true;
    };
    reasons.push(format!("through a cold page cache, {median:.2}x the rate of direct reads"));
    *median <= BUFFERED_GAIN
}

/// Returns one byte more than the largest size at which, and at all smaller ones, joined reads are
/// faster.
fn coalesce_below(rows: &[Row], reasons: &mut Vec<String>) -> Option<ByteSize> {
    let asked: Vec<&Row> = rows.iter().filter(|row| row.case.question == Question::Coalescing).collect();
    // Rows come in pairs: separate reads, then joined ones.
    let gains = asked.chunks_exact(2).filter(|pair| pair[0].gbps > 0.0);
    let gains = gains.map(|pair| (pair[0].case.request_size, pair[1].gbps / pair[0].gbps));
    let gains: Vec<(ByteSize, f64)> = gains.collect();
    if !gains.is_empty() {
        let texts: Vec<_> = gains.iter().map(|(size, gain)| format!("{size} {gain:.2}x")).collect();
        reasons.push(format!("four adjacent extents as one request: {}", texts.join(", ")));
    }
    let paying = gains.iter().take_while(|(_, gain)| *gain > COALESCE_GAIN);
    paying.last().map(|(size, _)| ByteSize(size.0 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::iobench::cases::cases;

    /// Makes the rows of a device with the given rate of every case.
    fn rows(direct: bool, rate: impl Fn(&Case) -> f64) -> Vec<Row> {
        let both = [IoChoice::Uring, IoChoice::Pread];
        let row = |case: Case| Row {
            case,
            bytes: 1,
            requests: 1,
            seconds: 1.0,
            gbps: rate(&case),
            gbps_min: rate(&case),
            gbps_max: rate(&case),
            p50_us: 1,
            p99_us: 1,
            cpu_s_per_gb: None,
            cache: if case.direct { Cache::Bypassed } else { Cache::Cold },
            compute_gbps: None,
        };
        cases(1 << 30, &both, direct).into_iter().map(row).collect()
    }

    /// Returns the rate of a disk that needs `mib` in flight for its 2 GB/s and serves 10,000
    /// requests per second.
    fn disk(case: &Case, mib: f64) -> f64 {
        let size = case.request_size.0 as f64;
        let in_flight = size * f64::from(case.queue_depth) / f64::from(1 << 20);
        (2.0 * (in_flight / mib).min(1.0)).min(size * 10_000.0 / 1e9)
    }

    #[test]
    fn equals_are_read_directly_with_io_uring_and_the_defaults() {
        let (settings, reasons) = advise(&rows(true, |case| disk(case, 1.0))).unwrap();
        let expected = (Some(IoChoice::Uring), Some(true), DEFAULT_REQUEST, DEFAULT_DEPTH);
        let IoSettings { engine, direct, request_size, queue_depth, .. } = settings;
        assert_eq!((engine, direct, request_size, queue_depth), expected);
        assert_eq!(settings.gbps, 2.0);
        // 10,000 requests of 64 KiB are 0.66 GB/s, of 256 KiB 2 GB/s and more.
        assert_eq!(settings.coalesce_below, Some(ByteSize(65537)));
        assert!(reasons.iter().any(|reason| reason.contains("64 KiB 3.05x")), "{reasons:?}");
    }

    #[test]
    fn more_in_flight_is_asked_for_where_it_pays() {
        let (settings, _) = advise(&rows(true, |case| disk(case, 60.0))).unwrap();
        assert_eq!(settings.request_size.0 * u64::from(settings.queue_depth), 64 << 20);
    }

    #[test]
    fn pread_and_the_page_cache_have_to_be_clearly_faster() {
        let faster = |engine: IoChoice, direct: bool, gain: f64| {
            let rate = move |case: &Case| {
                disk(case, 8.0) * if (case.engine, case.direct) == (engine, direct) { gain } else { 1.0 }
            };
            let (settings, _) = advise(&rows(true, rate)).unwrap();
            (settings.engine, settings.direct)
        };
        assert_eq!(faster(IoChoice::Pread, true, 1.04), (Some(IoChoice::Uring), Some(true)));
        assert_eq!(faster(IoChoice::Pread, true, 1.2), (Some(IoChoice::Pread), Some(true)));
        let buffered = |gain: f64| {
            let rate = move |case: &Case| disk(case, 8.0) * if case.direct { 1.0 } else { gain };
            advise(&rows(true, rate)).unwrap().0.direct
        };
        assert_eq!((buffered(1.2), buffered(1.4)), (Some(true), Some(false)));
    }

    #[test]
    fn what_was_not_compared_is_not_decided() {
        let none = advise(&rows(false, |case| disk(case, 8.0))).unwrap().0;
        assert_eq!((none.direct, none.engine), (None, Some(IoChoice::Uring)));
        let mut warm = rows(true, |case| disk(case, 8.0) * if case.direct { 1.0 } else { 9.0 });
        for row in &mut warm {
            row.cache = if row.case.direct { Cache::Bypassed } else { Cache::Warm };
        }
        assert_eq!(advise(&warm).unwrap().0.direct, None, "a warm cache is no reason");
        warm.retain(|row| row.case.engine == IoChoice::Pread);
        assert_eq!(advise(&warm).unwrap().0.engine, None);
        assert_eq!(advise(&[]), None);
    }
}
