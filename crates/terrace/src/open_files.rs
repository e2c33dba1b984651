//! The limit on open files: a model with one file per tensor needs thousands.

use terrace_cli::error::CliError;
use terrace_platform::process::{open_files_limit, raise_open_files_limit};

/// Files that a server needs open at least: the model, a few connections, and what requests need.
const LEAST: usize = 64;

/// The number of files that a server may have open.
///
/// # Errors
/// It is too small for a server.
pub fn of_server() -> Result<usize, CliError> {
    let limit = open_files_limit().and_then(|limit| usize::try_from(limit).ok());
    match limit.unwrap_or(usize::MAX) {
        few if few < LEAST => Err(CliError::Usage {
            message: format!("this process may have only {few} files open, too few for a server"),
            hint: format!("raise the limit to at least {LEAST}: ulimit -n 1024"),
        }),
        limit => Ok(limit),
    }
}

/// Raises the soft limit to the hard limit. If that fails the limit stays, and opening too many
/// files is an error later.
pub fn allow_many() {
    if let Err(error) = raise_open_files_limit() {
        tracing::debug!("cannot raise the limit on open files: {error}");
    }
}
