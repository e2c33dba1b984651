//! Writing files that the user named.

use crate::error::CliError;
use std::io::Write;
use std::path::Path;
use terrace_store::part_file::PartFile;

/// Writes the text to `path`. An existing file stays until the new one is complete, however the
/// program ends. Pipes and devices are written to directly.
///
/// # Errors
/// Errors of the system, with the path.
pub fn write(path: &Path, text: &str) -> Result<(), CliError> {
    write_bytes(path, text.as_bytes())
}

/// Writes bytes to `path`, as [`write()`] does.
///
/// # Errors
/// Errors of the system, with the path.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let is_special = path.metadata().is_ok_and(|there| !there.is_file());
    let written = match is_special {
        true => std::fs::write(path, bytes),
        false => PartFile::create(path).and_then(|part| part.finish(|out| out.write_all(bytes))).map(drop),
    };
    written.map_err(CliError::io(path.display().to_string()))
}
