//! What ends a measurement.

use std::path::PathBuf;

/// Why there are no numbers.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A run could not be started.
    #[error("cannot start {}: {source}", .program.display())]
    Start {
        /// This binary.
        program: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A run failed.
    #[error("the {side} run ended with {status}: {reason}")]
    Failed {
        /// `terrace` or `stock`.
        side: &'static str,
        /// Exit code or signal.
        status: String,
        /// Its own error line.
        reason: String,
        /// Its own hint.
        hint: Option<String>,
    },
    /// A run printed something else than a report.
    #[error("the {side} run printed no report: {reason}")]
    NoReport {
        /// `terrace` or `stock`.
        side: &'static str,
        /// Why it is none.
        reason: String,
    },
    /// Runs that should be equal are not.
    #[error(
        "the runs do not agree, so their times mean nothing: {side} run {run} has {} as token {at}, terrace run 0 has {}",
        token(*got), token(*expected)
    )]
    Disagree {
        /// `terrace` or `stock`.
        side: String,
        /// Which of its runs, 0 to warm up.
        run: usize,
        /// The first token that differs, from 0.
        at: usize,
        /// What the first run has there.
        expected: Option<i32>,
        /// What this one has.
        got: Option<i32>,
        /// Whether the baseline was allowed other rounding.
        repacked: bool,
    },
    /// The machine does not let itself be prepared.
    #[error("{what}: {}: {source}", .path.display())]
    Prepare {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is no control group to limit memory with.
    #[error("--memory-cap: no memory control group is mounted under /sys/fs/cgroup")]
    NoControlGroup,
}

fn token(token: Option<i32>) -> String {
    token.map_or_else(|| "the end".into(), |t| t.to_string())
}

impl BenchError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Failed { hint, .. } => hint.clone(),
            Self::Disagree { repacked: true, .. } => {
                Some("repacked weights round differently: use --baseline-repack off".into())
            }
            Self::Disagree { .. } => Some("this is a defect in terrace itself; please report it".into()),
            Self::Prepare { .. } | Self::NoControlGroup => {
                Some("--cold and --memory-cap need root, and control groups that may be written".into())
            }
            _ => None,
        }
    }
}
