//! The command line of `terrace trace`.

use crate::commands::run::RunArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;
use terrace_model::ByteSize;
use terrace_store::PolicyKind;
use terrace_store::tools::replay::ReplayPolicy;

/// What to do with a trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Generate text as `run` does, and write down which experts were chosen
    Record(Box<RecordArgs>),
    /// Count what a recorded run would have read under other policies and budgets
    Replay(ReplayArgs),
    /// List a recorded run's experts, the most used first, for --cache-policy static:FILE
    Hot(HotArgs),
}

/// `terrace trace record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `terrace trace replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A trace written by `terrace trace record`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    // The policies by name are the store's to list.
    #[arg(long, value_name = "P",
        help = format!("A policy: {}, or belady; may be repeated [default: all but static]", PolicyKind::CHOICES))]
    pub policy: Vec<ReplayPolicy>,
    /// RAM for the slots of managed weights: a size, or a share of these weights like 40%; may be repeated [default: what the run had]
    #[arg(long, value_name = "SIZE")]
    pub budget: Vec<Slots>,
    /// Speed of reading, in 10^9 bytes per second [default: what the run measured]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub gbps: Option<f64>,
    /// Time for computing a token when everything is there
    #[arg(long, value_name = "Y", default_value_t = 0.0, value_parser = not_negative)]
    pub compute_ms: f64,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `terrace trace hot`.
#[derive(Debug, Args)]
pub struct HotArgs {
    /// A trace written by `terrace trace record`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The list to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only the N most used [default: all that were used]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
}

/// RAM for slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slots {
    /// So many bytes.
    Bytes(ByteSize),
    /// So many percent of the managed weights.
    Percent(f64),
}

impl Slots {
    /// In bytes.
    pub fn of(self, managed: ByteSize) -> ByteSize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => ByteSize((managed.bytes() as f64 * percent / 100.0) as u64),
        }
    }
}

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_suffix('%') {
            Some(number) => match number.trim().parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Percent(percent)),
                _ => Err("a share is a number above 0 % and up to 100 %".into()),
            },
            None => text
                .parse()
                .map(Self::Bytes)
                .map_err(|error: terrace_model::ParseByteSizeError| error.to_string()),
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0).ok_or("not a number above 0".into())
}

fn not_negative(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0).ok_or("not a number of 0 or more".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_sizes_or_shares() {
        assert_eq!("2MiB".parse(), Ok(Slots::Bytes(ByteSize::mib(2))));
        assert_eq!("12.5%".parse::<Slots>().map(|slots| slots.of(ByteSize(800))), Ok(ByteSize(100)));
        for wrong in ["0%", "101%", "%", "-1%", "nan%", "much"] {
            assert!(wrong.parse::<Slots>().is_err(), "{wrong}");
        }
    }
}
