//! Text from files and stdin.

use crate::error::CliError;
use std::path::{Path, PathBuf};
use terrace_platform::input_file::{self, MAX_TEXT, without_mark};

/// Reads a text file, without a byte order mark at its start and one newline at its end.
///
/// # Errors
/// The file cannot be read or is not UTF-8.
pub fn file(path: &Path) -> Result<String, CliError> {
    let what = path.display().to_string();
    let bytes = input_file::read(path, MAX_TEXT).map_err(CliError::io(what.clone()))?;
    text(bytes, &what)
}

/// Returns the text, or that of the file; the text counts if there are both.
///
/// # Errors
/// The file cannot be read or is not UTF-8.
pub fn text_or_file(text: &Option<String>, path: &Option<PathBuf>) -> Result<Option<String>, CliError> {
    match text {
        Some(text) => Ok(Some(text.clone())),
        None => path.as_deref().map(file).transpose(),
    }
}

/// Reads bytes of `what` as text, without a byte order mark at the start and one newline at the end.
///
/// # Errors
/// The bytes are not UTF-8.
pub fn text(bytes: Vec<u8>, what: &str) -> Result<String, CliError> {
    let text = String::from_utf8(bytes)
        .map_err(|error| CliError::NotUtf8 { what: what.into(), offset: error.utf8_error().valid_up_to() })?;
    let mut text = without_mark(text);
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_byte_is_named() {
        let error = text(b"caf\xc3\xa9 \xff more".to_vec(), "stdin").unwrap_err();
        assert_eq!(error.to_string(), "stdin: invalid UTF-8 at byte offset 6");
    }

    #[test]
    fn one_newline_at_the_end_is_the_editors() {
        for (bytes, expected) in
            [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("\u{feff}a\n", "a")]
        {
            assert_eq!(text(bytes.into(), "f").unwrap(), expected);
        }
    }
}
