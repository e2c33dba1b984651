//! Opens and reads files within limits. A path may name a pipe that nobody writes to, a device
//! without an end, or a file of any size, so nothing here waits for a writer or reads without a limit.

use crate::file::{open_at_once, open_no_link as open_file_no_link};
use crate::sys::file::{descriptor, is_null, special_kind, wait_again};
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Largest text that an option may name, in bytes: prompts, grammars, schemas, templates, recipes.
pub const MAX_TEXT: u64 = 64 << 20;
/// Largest text of settings, in bytes: configuration files, keys, lists of names, references.
pub const MAX_SETTINGS: u64 = 1 << 20;

/// Opens a regular file for reading. Returns it with its length in bytes.
///
/// # Errors
/// Errors of the system, and an error with the kind of file if it is not a regular one. A pipe is
/// refused at once, whether or not it has a writer.
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    open_with(path, open_at_once)
}

/// Opens a regular file as [`open`] does, unless the path itself is a symbolic link.
///
/// # Errors
/// As [`open`], and the system's error for a link.
pub fn open_no_link(path: &Path) -> io::Result<(File, u64)> {
    open_with(path, open_file_no_link)
}

fn open_with(path: &Path, open: fn(&mut OpenOptions, &Path) -> io::Result<File>) -> io::Result<(File, u64)> {
    // Before the file is opened: opening a device can have effects.
    refuse_special(std::fs::metadata(path)?.file_type())?;
    // Another file may have taken its place since, and opening a pipe would wait for its writer.
    let file = open(OpenOptions::new().read(true), path)?;
    let meta = file.metadata()?;
    refuse_special(meta.file_type())?;
    wait_again(&file)?;
    Ok((file, meta.len()))
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open`], and an error with the limit if the file is larger.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, len) = open(path)?;
    limited(file, len, most)
}

/// Reads a regular file of at most `most` bytes as UTF-8. A byte order mark is left out.
///
/// # Errors
/// As [`read_regular`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_regular_text(path: &Path, most: u64) -> io::Result<String> {
    text(read_regular(path, most)?)
}

/// Reads a file of at most `most` bytes that the user named: a regular file, or a pipe or terminal
/// that the process already has open, as `/dev/stdin` and a shell's `<(command)` are. Such a pipe is
/// read to its end. `/dev/null`, which is `NUL` on Windows, is an empty file.
///
/// # Errors
/// As [`read_regular`]. Another pipe or device with a name in a file system is refused at once.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if is_null(path) {
        return Ok(Vec::new());
    }
    match descriptor(path) {
        Some(own) if !std::fs::metadata(path)?.is_file() => {
            if std::fs::metadata(path)?.is_dir() {
                return Err(kind_error("directory"));
            }
            limited(open_descriptor(&own)?, 0, most)
        }
        _ => read_regular(path, most),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
fn open_descriptor(own: &Path) -> io::Result<File> {
    File::open(own)
}

/// Reads a file that the user named as UTF-8, as [`read`] does. A byte order mark is left out.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// Reads at most `most` bytes from a stream, such as stdin.
///
/// # Errors
/// Errors of the system, and an error with the limit if there is more.
pub fn read_stream(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    limited(from, 0, most)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("invalid UTF-8 at byte offset {at}"))
    })?;
    Ok(without_mark(text))
}

/// Removes the byte order mark that some editors write at the start of a text.
pub fn without_mark(mut text: String) -> String {
    const MARK: char = '\u{feff}';
    if text.starts_with(MARK) {
        text.drain(..MARK.len_utf8());
    }
    text
}

fn limited(from: impl Read, len: u64, most: u64) -> io::Result<Vec<u8>> {
    if len > most {
        return Err(io::Error::other(format!("{len} bytes are too many (at most {most})")));
    }
    let mut bytes = Vec::new();
    // Files of /proc state no length.
    bytes.try_reserve(usize::try_from(len).unwrap_or(0))?;
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("too many bytes (at most {most})")));
    }
    Ok(bytes)
}

fn refuse_special(of: FileType) -> io::Result<()> {
    match kind(of) {
        None => Ok(()),
        Some(kind) => Err(kind_error(kind)),
    }
}

fn kind_error(kind: &str) -> io::Error {
    let text = format!("a {kind}, not a regular file");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The kind of a file; `None` means a regular one.
fn kind(of: FileType) -> Option<&'static str> {
    if of.is_dir() { Some("directory") } else { special_kind(of) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mark_at_the_start_is_removed() {
        for (text, expected) in [
            ("\u{feff}root", "root"),
            ("root", "root"),
            ("a\u{feff}", "a\u{feff}"),
            ("\u{feff}\u{feff}a", "\u{feff}a"),
            ("\u{feff}", ""),
        ] {
            assert_eq!(without_mark(text.into()), expected, "{text:?}");
        }
    }

    #[test]
    fn limits_hold_also_for_files_without_a_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        assert_eq!(read(&path, 4).unwrap_err().to_string(), "5 bytes are too many (at most 4)");
        let endless = read_stream(io::repeat(b'x'), 100).unwrap_err();
        assert_eq!(endless.to_string(), "too many bytes (at most 100)");
    }
}
