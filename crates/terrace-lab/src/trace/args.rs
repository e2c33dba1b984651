//! The options of `terrace trace`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;
use terrace_cli::args::RunArgs;
use terrace_cli::args::{Output, output};
use terrace_model::ByteSize;
use terrace_store::PolicyKind;
use terrace_store::tools::replay::ReplayPolicy;

/// Commands for traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Generate text as `run` does, and record which experts are chosen
    Record(Box<RecordArgs>),
    /// Count what a recorded run would have read with other policies and budgets
    Replay(ReplayArgs),
}

/// `terrace trace record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Trace to write
    #[arg(short, long, value_name = "FILE", value_parser = output(&terrace_backend::TRACE_FILE))]
    pub output: Output,
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
    // The store lists its policies by name.
    #[arg(long, value_name = "POLICY",
        help = format!("Policy to replay: {}, or belady; may be repeated [default: all but static]", PolicyKind::CHOICES))]
    pub policy: Vec<ReplayPolicy>,
    /// RAM for slots: a size, or a share of the streamed weights like 40%; may be repeated
    /// [default: what the run had]
    #[arg(long, value_name = "SIZE")]
    pub budget: Vec<Slots>,
    /// Read rate, in 10^9 bytes per second [default: the rate that the run measured]
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub gbps: Option<f64>,
    /// Time to compute a token when all its weights are in slots, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative)]
    pub compute_ms: f64,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// RAM for slots, as given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slots {
    /// A size in bytes.
    Bytes(ByteSize),
    /// Percent of the streamed weights.
    Percent(f64),
}

impl Slots {
    /// The size in bytes, where `managed` bytes of weights stream.
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
            Some(number) => share(number).map(Self::Percent),
            None => text
                .parse()
                .map(Self::Bytes)
                .map_err(|error: terrace_model::ParseByteSizeError| error.to_string()),
        }
    }
}

/// Percent, without the sign.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.trim().parse().ok().filter(|percent: &f64| *percent > 0.0 && *percent <= 100.0);
    percent.ok_or("a share must be above 0 % and at most 100 %".into())
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0).ok_or("must be a number above 0".into())
}

fn not_negative(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x: &f64| x.is_finite() && *x >= 0.0)
        .ok_or("must be a number of 0 or more".into())
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
