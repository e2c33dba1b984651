//! Routing traces in files.

use crate::error::CliError;
use std::path::Path;
use terrace_model::ByteSize;
use terrace_model::trace::Trace;

/// A trace is written from memory, where it is limited to a quarter of this.
const MOST: u64 = 1 << 30;

/// Reads a trace's file.
///
/// # Errors
/// A file that cannot be read, or is no trace.
pub fn read(path: &Path) -> Result<Trace, CliError> {
    let name = path.display().to_string();
    let len = std::fs::metadata(path).map_err(CliError::io(&name))?.len();
    if len > MOST {
        return Err(CliError::Trace {
            path: path.to_owned(),
            reason: format!("{} are too many", ByteSize(len)),
        });
    }
    let bytes = std::fs::read(path).map_err(CliError::io(&name))?;
    Trace::read(&bytes).map_err(|error| CliError::Trace { path: path.to_owned(), reason: error.to_string() })
}
