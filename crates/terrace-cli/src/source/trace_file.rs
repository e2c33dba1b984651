//! Files of routing traces.

use crate::error::CliError;
use std::path::Path;
use terrace_model::trace::Trace;
use terrace_platform::input_file;

/// Maximum size of a file. Traces are written from memory, where the limit is a quarter of this.
const MAX_FILE: u64 = 1 << 30;

/// Reads the file of a trace.
///
/// # Errors
/// The file cannot be read, or is not a trace.
pub fn read(path: &Path) -> Result<Trace, CliError> {
    let name = path.display().to_string();
    let bytes = input_file::read(path, MAX_FILE).map_err(CliError::io(&name))?;
    Trace::read(&bytes).map_err(|error| CliError::Trace { path: path.to_owned(), reason: error.to_string() })
}
