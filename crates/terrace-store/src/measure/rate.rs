//! The rate of a disk that settings are not chosen for.

use super::load::{Load, measure, touched};
use super::pattern::Pattern;
use crate::choice::{DirectChoice, IoChoice};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::io::{open_engine, open_files};
use crate::limits::QueueDepth;
use std::path::Path;
use std::time::Duration;
use terrace_model::ByteSize;

/// Requests in flight: enough for any disk, and few enough that a slow one is done with them soon.
const DEPTH: u32 = 8;
/// Largest requests that are tried.
const MOST_REQUEST: ByteSize = ByteSize::mib(4);
/// Duration in which new requests are sent, and its repetitions: other load only makes it slower.
const EACH: Duration = Duration::from_millis(8);
const ROUNDS: u32 = 3;

/// Measures scattered direct reads of the file in requests of this size, in 10^9 bytes per second.
/// `None` if the budget is too small, or the file.
pub(crate) fn rate(
    path: &Path,
    io: IoChoice,
    request: ByteSize,
    config: &StoreConfig,
) -> Result<Option<f64>, StoreError> {
    let request = request.min(MOST_REQUEST).0;
    let memory = 2 * request * u64::from(DEPTH);
    let files = open_files(vec![path.to_owned()], DirectChoice::On)?;
    let file_len = files.all[0].len;
    if memory > config.budget.0 || memory > file_len {
        return Ok(None);
    }
    let failed = |source| StoreError::Open { path: path.to_owned(), source };
    let memory = touched(memory).map_err(failed)?;
    let load = Load {
        pattern: Pattern::Scattered,
        file_len,
        request,
        depth: DEPTH,
        adjacent: 1,
        once: false,
        buffered: false,
        time: EACH,
    };
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let (engine, _) = open_engine(io, QueueDepth::fixed(DEPTH), None, &files)?;
        best = best.max(measure(engine, &memory, &load, &config.clock).map_err(failed)?.gbps());
    }
    Ok((best > 0.0).then_some(best))
}
