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
    let is_special = path.metadata().is_ok_and(|there| !there.is_file());
    let written = match is_special {
        true => std::fs::write(path, text),
        false => PartFile::create(path)
            .and_then(|part| part.finish(|out| out.write_all(text.as_bytes())))
            .map(drop),
    };
    written.map_err(CliError::io(path.display().to_string()))
}
