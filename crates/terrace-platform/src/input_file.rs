//! Opens and reads files within limits. A path may name a pipe that nobody writes to, a device
//! without an end, or a file of any size, so nothing here waits for a writer or reads without a limit.

use rustix::fs::OFlags;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest text that an option may name, in bytes: prompts, grammars, schemas, templates, recipes.
pub const MAX_TEXT: u64 = 64 << 20;
/// Largest text of settings, in bytes: configuration files, keys, lists of names, references.
pub const MAX_SETTINGS: u64 = 1 << 20;

/// The number of the device `/dev/null`: 1, 3.
const NULL: u64 = (1 << 8) | 3;

/// Longest chain of symbolic links that [`descriptor`] follows. Linux follows 40.
const MAX_LINKS: usize = 40;

/// Opens a regular file for reading. Returns it with its length in bytes.
///
/// # Errors
/// Errors of the system, and an error with the kind of file if it is not a regular one. A pipe is
/// refused at once, whether or not it has a writer.
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    open_with(path, OFlags::empty())
}

/// Opens a regular file as [`open`] does, unless the path itself is a symbolic link.
///
/// # Errors
/// As [`open`]; `ELOOP` for a link.
pub fn open_no_link(path: &Path) -> io::Result<(File, u64)> {
    open_with(path, OFlags::NOFOLLOW)
}

fn open_with(path: &Path, more: OFlags) -> io::Result<(File, u64)> {
    // Before the file is opened: opening a device can have effects.
    refuse_special(std::fs::metadata(path)?.file_type())?;
    // Another file may have taken its place since, and opening a pipe would wait for its writer.
    let file = open_at_once(path, more)?;
    let meta = file.metadata()?;
    refuse_special(meta.file_type())?;
    // For regular files the flag has no effect, except that io_uring reports EAGAIN.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok((file, meta.len()))
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
fn open_at_once(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | more).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
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
/// read to its end. `/dev/null` is an empty file.
///
/// # Errors
/// As [`read_regular`]. Another pipe or device with a name in a file system is refused at once.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let meta = std::fs::metadata(path)?;
    if meta.file_type().is_char_device() && meta.rdev() == NULL {
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
    [
        (of.is_dir(), "directory"),
        (of.is_fifo(), "pipe"),
        (of.is_char_device() || of.is_block_device(), "device"),
        (of.is_socket(), "socket"),
    ]
    .into_iter()
    .find_map(|(is, kind)| is.then_some(kind))
}

/// The open descriptor of this process that a path names, as a path below `/proc/self/fd`; `None` if
/// it names none.
fn descriptor(path: &Path) -> Option<PathBuf> {
    let own = Path::new("/proc/self/fd").canonicalize().ok()?;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name()?.to_owned();
        if folder.canonicalize().ok()? == own {
            return name.to_str()?.parse::<u32>().ok().map(|number| own.join(number.to_string()));
        }
        path = folder.join(std::fs::read_link(&path).ok()?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

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
    fn nothing_special_is_read_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, zero) = (dir.path().join("pipe"), dir.path().join("zero"));
        mknodat(CWD, &pipe, Kind::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        symlink("/dev/zero", &zero).unwrap();
        for (path, kind) in [(pipe.as_path(), "pipe"), (&zero, "device"), (dir.path(), "directory")] {
            for error in
                [read(path, 9).unwrap_err(), open(path).unwrap_err(), read_regular(path, 9).unwrap_err()]
            {
                assert_eq!(error.to_string(), format!("a {kind}, not a regular file"));
            }
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
        assert!(read_regular(Path::new("/proc/self/status"), 10).is_err());
        assert!(read_regular_text(Path::new("/proc/self/status"), 1 << 20).unwrap().contains("VmRSS"));
    }

    #[test]
    fn open_pipes_of_the_process_are_read_to_their_end() {
        let (from, mut to) = io::pipe().unwrap();
        to.write_all(b"a grammar").unwrap();
        drop(to);
        for name in ["/dev/fd", "/proc/self/fd"] {
            let path = PathBuf::from(format!("{name}/{}", from.as_raw_fd()));
            assert!(descriptor(&path).is_some(), "{name}");
        }
        let path = PathBuf::from(format!("/dev/fd/{}", from.as_raw_fd()));
        assert_eq!(read_text(&path, 100).unwrap(), "a grammar");
        assert_eq!(read_text(Path::new("/dev/null"), 0).unwrap(), "");
        assert!(descriptor(Path::new("/dev/stdin")).is_some());
        assert_eq!(descriptor(Path::new("/dev/zero")), None);
        assert_eq!(descriptor(Path::new("Cargo.toml")), None);
    }

    #[test]
    fn links_are_followed_unless_that_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read_text(&link, 9).unwrap(), "text");
        assert!(open_no_link(&link).is_err());
        assert_eq!(open_no_link(&file).unwrap().1, 4);
    }
}
