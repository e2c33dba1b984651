//! Medians, spreads and ratios.

use super::child::Side;
use serde::Serialize;
use terrace_cli::report::RunReport;

/// A number that is read from each run's report.
pub struct Metric {
    /// The key in JSON.
    pub key: &'static str,
    /// Name and unit, for the table.
    pub label: &'static str,
    /// Divisor of the value in the table.
    pub scale: f64,
    read: fn(&RunReport) -> Option<f64>,
}

/// All metrics, the most important first.
pub const METRICS: [Metric; 16] = [
    Metric { key: "decode_tps", label: "decode, tokens/s", scale: 1.0, read: |r| Some(r.timings.decode_tps) },
    Metric {
        key: "prompt_tps",
        label: "prefill, tokens/s",
        scale: 1.0,
        read: |r| Some(r.timings.prompt_tps),
    },
    Metric { key: "load_ms", label: "load, ms", scale: 1.0, read: |r| Some(r.timings.load_ms) },
    Metric { key: "ttft_ms", label: "first token, ms", scale: 1.0, read: |r| Some(r.timings.ttft_ms) },
    Metric {
        key: "peak_rss_bytes",
        label: "peak RSS, MiB",
        scale: 1048576.0,
        read: |r| Some(r.peak_rss_bytes as f64),
    },
    Metric { key: "prompt_ms", label: "prefill, ms", scale: 1.0, read: |r| Some(r.timings.prompt_ms) },
    Metric { key: "decode_ms", label: "decode, ms", scale: 1.0, read: |r| Some(r.timings.decode_ms) },
    Metric {
        key: "bytes_read",
        label: "read by the store, MiB",
        scale: 1048576.0,
        read: |r| r.store.map(|s| s.bytes_read as f64),
    },
    Metric { key: "hit_rate", label: "hits, %", scale: 0.01, read: |r| r.store.map(|s| s.hit_rate) },
    Metric {
        key: "hot_hit_rate",
        label: "experts on devices, %",
        scale: 0.01,
        read: |r| r.hot_experts.as_ref().map(|hot| hot.hit_rate),
    },
    Metric {
        key: "experts_ms",
        label: "computing experts, ms",
        scale: 1.0,
        read: |r| r.store.map(|s| s.experts_ms),
    },
    Metric {
        key: "dense_ms",
        label: "computing the rest, ms",
        scale: 1.0,
        read: |r| r.store.map(|s| s.dense_ms),
    },
    Metric { key: "stall_ms", label: "waiting, ms", scale: 1.0, read: |r| r.store.map(|s| s.stall_ms) },
    Metric { key: "io_busy_ms", label: "reading, ms", scale: 1.0, read: |r| r.store.map(|s| s.io_busy_ms) },
    Metric { key: "overlap", label: "reading hidden, %", scale: 0.01, read: |r| r.store.map(|s| s.overlap) },
    Metric {
        key: "duty",
        label: "disk during demand, %",
        scale: 0.01,
        read: |r| r.store.and_then(|s| s.duty),
    },
];

/// Median, minimum and maximum of some values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The median; for an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// All values, in the order of the runs.
    pub values: Vec<f64>,
}

impl Spread {
    /// Computes the spread. `None` without values.
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max, values })
    }
}

/// One metric over all sides.
pub struct Row {
    pub metric: &'static Metric,
    /// The spread of each side. `None` if a side has no such number.
    pub sides: Vec<Option<Spread>>,
    /// Ratios terrace / stock of the pairs of runs: of several stock sides, the best one in this
    /// metric if it is a rate, otherwise the one that decodes fastest. `None` without a baseline, or
    /// if one of stock's numbers is 0.
    pub ratio: Option<Spread>,
}

/// All numbers of a bench, without the warm-ups.
pub struct Comparison {
    /// Names of the sides.
    pub names: Vec<String>,
    /// One row per metric.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Compares the sides' runs.
    pub fn of(sides: &[Side], runs: &[Vec<RunReport>]) -> Self {
        let best = |metric: &Metric| {
            let median = |side: &usize| {
                let values: Option<Vec<f64>> = runs[*side].iter().skip(1).map(metric.read).collect();
                values.and_then(Spread::of).map_or(0.0, |spread| spread.median)
            };
            (1..runs.len()).max_by(|a, b| median(a).total_cmp(&median(b)))
        };
        let rows = METRICS.iter().map(|metric| {
            let values: Vec<Option<Vec<f64>>> =
                runs.iter().map(|runs| runs.iter().skip(1).map(metric.read).collect()).collect();
            let stock = best(if metric.key.ends_with("_tps") { metric } else { &METRICS[0] });
            let ratio = match (&values[0], stock.and_then(|side| values[side].as_ref())) {
                (Some(ours), Some(stock)) if stock.iter().all(|v| *v > 0.0) => {
                    Spread::of(ours.iter().zip(stock).map(|(a, b)| a / b).collect())
                }
                _ => None,
            };
            Row { metric, sides: values.into_iter().map(|v| v.and_then(Spread::of)).collect(), ratio }
        });
        Self { names: sides.iter().map(|side| side.name.clone()).collect(), rows: rows.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(vec![]), None);
    }
}
