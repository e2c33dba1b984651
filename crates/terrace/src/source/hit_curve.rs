//! How often experts are reused: a formula, or what a recorded run did.

use super::trace_file;
use crate::error::CliError;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_model::ByteSize;
use terrace_plan::HitCurve;
use terrace_store::PolicyKind;
use terrace_store::tools::replay::{Replay, ReplayPolicy};

/// Sizes of the slots with which a trace is replayed, in percent of the experts' bytes.
const BUDGETS: [u64; 7] = [5, 10, 20, 30, 45, 60, 80];

/// The source of the hit curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Trained models.
    Typical,
    /// Uniform use of all experts.
    Uniform,
    /// A recorded run.
    Trace(PathBuf),
}

impl FromStr for Hits {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "typical" => Self::Typical,
            "uniform" => Self::Uniform,
            file => Self::Trace(file.into()),
        })
    }
}

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typical => f.pad("typical"),
            Self::Uniform => f.pad("uniform"),
            Self::Trace(path) => path.display().fmt(f),
        }
    }
}

impl Hits {
    /// The hit curve, of a trace as a cache with this policy hits. `None` stands for the model's usual
    /// one.
    ///
    /// # Errors
    /// The file is not a trace, or contains no experts.
    pub fn curve(&self, policy: &PolicyKind) -> Result<Option<HitCurve>, CliError> {
        let file = match self {
            Self::Typical => return Ok(None),
            Self::Uniform => return Ok(Some(HitCurve::uniform())),
            Self::Trace(file) => file,
        };
        let trace = trace_file::read(file)?;
        let bad = |reason: String| CliError::Trace { path: file.clone(), reason };
        if trace.groups.is_empty() {
            return Err(bad("the trace has no MoE block, so there is nothing to replay".into()));
        }
        let replay = Replay::new(&trace);
        let all = trace.managed_bytes();
        let mut points = Vec::new();
        for percent in BUDGETS {
            let slots = ByteSize(all.bytes() / 100 * percent);
            // Slots too small for one block have no hits.
            let Ok(result) = replay.run(&ReplayPolicy::Online(policy.clone()), slots) else { continue };
            let counts = if result.decode.passes > 0 { result.decode } else { result.total() };
            points.push((percent as f64 / 100.0, counts.hit_rate()));
        }
        HitCurve::measured(points).map(Some).map_err(|error| bad(error.to_string()))
    }
}
