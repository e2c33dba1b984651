//! Files of routing traces.

use crate::error::CliError;
use std::path::Path;
use terrace_model::ByteSize;
use terrace_model::trace::Trace;

/// Maximum size of a file. Traces are written from memory, where the limit is a quarter of this.
const MOST: u64 = 1 << 30;

/// Reads the file of a trace.
///
/// # Errors
/// The file cannot be read, or is not a trace.
pub fn read(path: &Path) -> Result<Trace, CliError> {
    let name = path.display().to_string();
    let len = std::fs::metadata(path).map_err(CliError::io(&name))?.len();
    if len > MOST {
        return Err(CliError::Trace {
            path: path.to_owned(),
            reason: format!("the file has {}, and a trace has at most {}", ByteSize(len), ByteSize(MOST)),
        });
    }
    let bytes = std::fs::read(path).map_err(CliError::io(&name))?;
    Trace::read(&bytes).map_err(|error| CliError::Trace { path: path.to_owned(), reason: error.to_string() })
}
