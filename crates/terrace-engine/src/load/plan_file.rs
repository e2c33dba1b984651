//! Reads plan files.

use crate::file_error::{FileError, FileRole};
use std::path::Path;
use terrace_model::ByteSize;
use terrace_plan::PlanFile;

/// Reads a plan that was written as JSON and perhaps edited since.
pub fn read_plan(path: &Path) -> Result<PlanFile, FileError> {
    /// Limit in bytes; the plan of the largest model takes a few hundred kilobytes.
    const MOST: ByteSize = ByteSize::mib(16);
    let bad = |reason: String| FileError { role: FileRole::Plan, path: path.into(), reason };
    let size = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if size > MOST.bytes() {
        return Err(bad(format!("{} is too large for a plan (at most {MOST})", ByteSize(size))));
    }
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    PlanFile::from_json(&text).map_err(|error| bad(error.to_string()))
}
