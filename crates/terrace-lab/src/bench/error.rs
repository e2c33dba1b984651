//! Errors of measurements.

use std::path::PathBuf;
use terrace_cli::error::Hinted;

/// Why there are no numbers.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A run could not be started.
    #[error("cannot start {}: {source}", .program.display())]
    Start {
        /// The program, which is this binary.
        program: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A run failed.
    #[error("the {side} run failed ({status}): {reason}")]
    Failed {
        /// Name of the side.
        side: String,
        /// Exit code or signal.
        status: String,
        /// Its error line.
        reason: String,
        hint: Option<String>,
    },
    /// A run printed something other than a report.
    #[error("the {side} run printed no valid report: {reason}")]
    NoReport {
        /// Name of the side.
        side: String,
        /// Why it is not a report.
        reason: String,
    },
    /// Runs generated different tokens.
    #[error(
        "the runs generated different tokens, so their times cannot be compared: token {at} is {} in {side} run {run} and {} in {reference} run 0",
        token(*got), token(*expected)
    )]
    Disagree {
        /// Name of the side.
        side: String,
        /// The number of the run; 0 is the warm-up.
        run: usize,
        /// The first token that differs, counted from 0.
        at: usize,
        /// The token of the first run.
        expected: Option<i32>,
        /// The token of this run.
        got: Option<i32>,
        /// Name of the side that it is compared with.
        reference: String,
        /// True if the baseline was allowed to round differently.
        repacked: bool,
    },
    /// Devices round differently, but not that much.
    #[error(
        "the {side} runs generated other tokens from token {at} on, and their logits after the prompt deviate by {deviation:.2e} from Terrace's, more than --tolerance {tolerance}"
    )]
    Deviate {
        /// Name of the side.
        side: String,
        /// The first token that differs, counted from 0.
        at: usize,
        /// Mean squared difference over the variance.
        deviation: f64,
        /// Permitted difference.
        tolerance: f64,
    },
    /// No stock run of what is asked for fits.
    #[error("--baseline: no such run of stock llama.cpp fits into memory")]
    NoBaseline,
    /// The logits of a run cannot be read.
    #[error("{}: {source}", .path.display())]
    Logits {
        /// The temporary file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The machine cannot be prepared for a run.
    #[error("{what}: {}: {source}", .path.display())]
    Prepare {
        /// The option that asked for it.
        what: &'static str,
        /// The file that failed.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is no control group that could limit memory.
    #[error("--memory-cap: no memory control group is mounted under {}", .0.display())]
    NoControlGroup(PathBuf),
    /// The system has nothing that the option needs.
    #[error("{0}: not possible on this system")]
    Unsupported(&'static str),
}

fn token(token: Option<i32>) -> String {
    token.map_or_else(|| "missing".into(), |t| t.to_string())
}

impl Hinted for BenchError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Failed { hint, .. } => hint.clone(),
            Self::Disagree { repacked: true, .. } => {
                Some("repacked weights round differently: use --baseline-repack off".into())
            }
            Self::Disagree { .. } => Some("this is a bug in terrace; please report it".into()),
            Self::NoBaseline => Some("use --baseline=cpu".into()),
            Self::Prepare { .. } | Self::NoControlGroup(_) => {
                Some("run as root; --memory-cap also needs control groups that can be written".into())
            }
            _ => None,
        }
    }
}
