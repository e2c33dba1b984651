//! Small files of JSON beside a model: read within limits and by version, written whole or not at all.

use crate::file_error::{FileError, FileRole};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use terrace_model::parse_reason;
use terrace_platform::input_file;
use terrace_platform::own_file::OwnFile;
use terrace_store::part_file::PartFile;

/// Limit in bytes. Such files take a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// Reads the file at `path`, of which `check` says what is wrong with it.
///
/// # Errors
/// [`FileError`]: no such file, too large, not such a file or of this version, or refused by `check`.
pub fn read<T: DeserializeOwned>(
    role: FileRole,
    path: &Path,
    version: u32,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Result<T, FileError> {
    let error = |reason: String| FileError { role, path: path.to_owned(), reason };
    let text = input_file::read_text(path, LARGEST).map_err(|e| error(e.to_string()))?;
    let value = parse(role, &text, version).map_err(error)?;
    check(&value).map_err(error)?;
    Ok(value)
}

/// Reads the text of such a file.
///
/// # Errors
/// The reason, in words.
pub fn parse<T: DeserializeOwned>(role: FileRole, text: &str, version: u32) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let no_such_file = |e: serde_json::Error| format!("not a {role}: {}", parse_reason(&e));
    let Version { version: found } = serde_json::from_str(text).map_err(no_such_file)?;
    if found != version {
        return Err(format!("version {found} is not supported (expected version {version})"));
    }
    serde_json::from_str(text).map_err(no_such_file)
}

/// Writes `value` to `path`, replacing an existing file of the kind once everything is written.
///
/// # Errors
/// [`FileError`] with the system's reason.
pub fn write(
    role: FileRole,
    kind: &'static OwnFile,
    path: &Path,
    value: &impl Serialize,
) -> Result<(), FileError> {
    let error = |e: std::io::Error| FileError::unwritten(role, path.to_owned(), &e);
    let text = serde_json::to_string_pretty(value).expect("numbers and names") + "\n";
    let part = PartFile::create(path, kind).map_err(error)?;
    part.finish(|out| out.write_all(text.as_bytes())).map_err(error)?;
    Ok(())
}
