//! Writing files that the user named.

use crate::error::CliError;
use crate::written::{SVG, SVG_MARK};
use std::io::Write;
use std::path::Path;
use terrace_platform::own_file::OwnFile;
use terrace_store::part_file::PartFile;

/// Writes the text to `path`. An existing file stays until the new one is complete, however the
/// program ends, and one that is not of the kind stays for good. Pipes and devices are written to
/// directly.
///
/// # Errors
/// Errors of the system, with the path, and an error for a file of another kind.
pub fn write(path: &Path, kind: &'static OwnFile, text: &str) -> Result<(), CliError> {
    write_bytes(path, kind, text.as_bytes())
}

/// Writes a drawing to `path`, as [`write()`] does, with a mark by which it is recognised.
///
/// # Errors
/// As [`write()`].
pub fn write_svg(path: &Path, drawing: &str) -> Result<(), CliError> {
    write(path, &SVG, &drawing.replacen("<svg ", SVG_MARK, 1))
}

/// Writes bytes to `path`, as [`write()`] does.
///
/// # Errors
/// As [`write()`].
pub fn write_bytes(path: &Path, kind: &'static OwnFile, bytes: &[u8]) -> Result<(), CliError> {
    let is_special = path.metadata().is_ok_and(|there| !there.is_file());
    let written = match is_special {
        true => write_special(path, bytes),
        false => {
            PartFile::create(path, kind).and_then(|part| part.finish(|out| out.write_all(bytes))).map(drop)
        }
    };
    written.map_err(CliError::io(path.display().to_string()))
}

#[expect(clippy::disallowed_methods, reason = "a pipe or a device, of which nothing is replaced")]
fn write_special(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::write(path, bytes)
}
