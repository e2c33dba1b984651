//! The options of `terrace plan --workers`.

use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_model::ByteSize;
use terrace_plan::advice::WhatIf;

/// Most workers.
const MOST_WORKERS: u32 = 1024;

/// Workers to plan with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub struct WorkersArgs {
    /// Also show what these numbers of workers would give and cost, separated by commas; 1..8 means all from
    /// 1 to 8. --svg then draws that
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["explain", "plan"])]
    pub workers: Vec<Counts>,
    /// Numbers of clients that are served at the same time, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", requires = "workers", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: Vec<u32>,
    /// The machine of each worker, described as for --machine: it lends its accelerators, or its
    /// processor and RAM if it has none [default: as the machine with the model]
    #[arg(long, value_name = "FILE", requires = "workers")]
    pub worker: Option<PathBuf>,
    /// Changes to the machine of each worker, as for --what-if
    #[arg(long, value_name = "CHANGES", requires = "workers")]
    pub worker_what_if: Option<WhatIf>,
    /// Bandwidth of the link to each worker, such as 10Gbit, 100Mbit or 1.2GB/s
    #[arg(long, value_name = "RATE", default_value = "10Gbit", requires = "workers", value_parser = rate)]
    pub link: f64,
    /// Time there and back over the link, such as 50us or 0.2ms
    #[arg(long, value_name = "TIME", default_value = "100us", requires = "workers", value_parser = time)]
    pub latency: f64,
    /// Price of the machine with the model, per hour in any currency
    #[arg(long, value_name = "PRICE", requires = "workers", default_value_t = 0.0, value_parser = price)]
    pub home_price: f64,
    /// Price of a worker, per hour
    #[arg(long, value_name = "PRICE", requires = "workers", default_value_t = 0.0, value_parser = price)]
    pub worker_price: f64,
}

/// A number of workers, or all numbers of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The first and the last.
    pub first: u32,
    /// See `first`.
    pub last: u32,
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse().ok().filter(|&n: &u32| n <= MOST_WORKERS);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!("must be a number of workers up to {MOST_WORKERS}, or a range like 1..8")),
        }
    }
}

/// Bytes per second: networks are named in bits.
fn rate(text: &str) -> Result<f64, String> {
    let bad = || "must be a rate such as 10Gbit, 100Mbit or 1.2GB/s".to_owned();
    let per_second = text.trim().trim_end_matches("/s");
    let bytes = match per_second.strip_suffix("bit") {
        Some(bits) => {
            let (number, factor) = match bits.chars().last() {
                Some('G') => (&bits[..bits.len() - 1], 1e9),
                Some('M') => (&bits[..bits.len() - 1], 1e6),
                Some('k' | 'K') => (&bits[..bits.len() - 1], 1e3),
                _ => (bits, 1.0),
            };
            number.trim().parse::<f64>().map_err(|_| bad())? * factor / 8.0
        }
        None if text.trim().ends_with("/s") => {
            per_second.parse::<ByteSize>().map_err(|_| bad())?.bytes() as f64
        }
        None => return Err(bad()),
    };
    if bytes.is_finite() && bytes >= 1.0 { Ok(bytes) } else { Err(bad()) }
}

/// Seconds.
fn time(text: &str) -> Result<f64, String> {
    let units = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = units.into_iter().find_map(|(unit, factor)| {
        Some(text.trim().strip_suffix(unit)?.trim().parse::<f64>().ok()? * factor)
    });
    seconds
        .filter(|seconds| (0.0..=60.0).contains(seconds))
        .ok_or("must be a time such as 50us or 0.2ms".into())
}

fn price(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|price: &f64| price.is_finite() && *price >= 0.0)
        .ok_or("must be a number of 0 or more".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_in_bits_or_bytes() {
        assert_eq!(rate("10Gbit"), Ok(1.25e9));
        assert_eq!(rate("100Mbit/s"), Ok(1.25e7));
        assert_eq!(rate("1.2GB/s"), Ok(1.2e9));
        assert_eq!(time("50us").map(|s| (s * 1e9).round()), Ok(5e4));
        assert_eq!(time("0.2ms").map(|s| (s * 1e9).round()), Ok(2e5));
        for wrong in ["", "10", "10G", "0Gbit", "-1Gbit", "fastbit", "1GB"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "us", "-1ms", "2min", "61s", "nans"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn workers_are_numbers_and_ranges() {
        assert_eq!("1..64".parse(), Ok(Counts { first: 1, last: 64 }));
        assert_eq!("8".parse(), Ok(Counts { first: 8, last: 8 }));
        for wrong in ["", "..", "3..1", "-1", "1..4096", "many"] {
            assert!(wrong.parse::<Counts>().is_err(), "{wrong}");
        }
    }
}
