//! Reads plan files.

use crate::file_error::{FileError, FileRole};
use std::path::Path;
use terrace_model::ByteSize;
use terrace_plan::PlanFile;
use terrace_platform::input_file;

/// Reads a plan that was written as JSON and perhaps edited since.
pub fn read_plan(path: &Path) -> Result<PlanFile, FileError> {
    /// Limit in bytes; the plan of the largest model takes a few hundred kilobytes.
    const MAX_FILE: ByteSize = ByteSize::mib(16);
    let bad = |reason: String| FileError { role: FileRole::Plan, path: path.into(), reason };
    let text = input_file::read_text(path, MAX_FILE.bytes()).map_err(|error| bad(error.to_string()))?;
    PlanFile::from_json(&text).map_err(|error| bad(error.to_string()))
}
