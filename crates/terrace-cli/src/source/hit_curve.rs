//! Reuse of experts: a formula, or the curve of a recorded run.

use super::trace_file;
use crate::error::CliError;
use terrace_engine::options::Hits;
use terrace_model::ByteSize;
use terrace_plan::HitCurve;
use terrace_store::PolicyKind;
use terrace_store::tools::replay::{Replay, ReplayPolicy};

/// Sizes of the slots with which a trace is replayed, in percent of the experts' bytes.
const BUDGETS: [u64; 7] = [5, 10, 20, 30, 45, 60, 80];

/// Replaces a trace by the hit curve of a cache with this policy.
///
/// # Errors
/// The file is not a trace, or contains no experts.
pub fn read(hits: Hits, policy: &PolicyKind) -> Result<Hits, CliError> {
    let Hits::Trace(file) = &hits else { return Ok(hits) };
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
    HitCurve::measured(points).map(Hits::Curve).map_err(|error| bad(error.to_string()))
}
