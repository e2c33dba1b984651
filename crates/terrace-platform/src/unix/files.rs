//! Calls for files that are the same on Linux and macOS.

use super::file::OPEN_FILES;
use crate::file::{FileId, State, Times};
use rustix::fs::OFlags;
use std::borrow::Cow;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[inline]
pub fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(file, to, offset)?)
}

pub fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwrite(file, from, offset)?)
}

pub fn id(meta: &Metadata) -> FileId {
    FileId { device: meta.dev(), number: meta.ino() }
}

pub fn id_no_link(path: &Path) -> io::Result<FileId> {
    path.symlink_metadata().map(|meta| id(&meta))
}

pub fn state_of(file: &File) -> io::Result<State> {
    file.metadata().map(|meta| state(&meta))
}

pub fn state_at(path: &Path) -> io::Result<State> {
    path.metadata().map(|meta| state(&meta))
}

fn state(meta: &Metadata) -> State {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let times = Times {
        modified: nanos(meta.mtime(), meta.mtime_nsec()),
        changed: nanos(meta.ctime(), meta.ctime_nsec()),
    };
    State { id: id(meta), len: meta.len(), times }
}

pub fn stored_bytes(path: &Path) -> io::Result<u64> {
    Ok(path.metadata()?.blocks().saturating_mul(512))
}

/// Reads at offsets do not wait for each other.
pub fn shared(file: File) -> io::Result<File> {
    Ok(file)
}

pub fn free_space(path: &Path) -> io::Result<u64> {
    let space = rustix::fs::statvfs(path)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

#[expect(clippy::disallowed_methods, reason = "this is where files are renamed")]
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

pub fn for_c(path: &Path) -> Cow<'_, Path> {
    path.into()
}

/// The path of an open file of this process by its number.
pub fn by_number(descriptor: i32) -> PathBuf {
    format!("{OPEN_FILES}/{descriptor}").into()
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn open_at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(flags(OFlags::NONBLOCK | OFlags::NOCTTY)).open(path)
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(flags(OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW)).open(path)
}

/// Flags of an opening, as the system's number.
pub fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Has reads wait again, after [`open_at_once`]. For regular files the flag has no effect, except that
/// io_uring reports EAGAIN.
pub fn wait_again(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - OFlags::NONBLOCK)?)
}

#[expect(clippy::disallowed_methods, reason = "a device that is the same everywhere")]
pub fn open_null() -> io::Result<File> {
    File::open("/dev/null")
}

/// Kind of a file that is neither a regular one nor a folder.
pub fn special_kind(of: FileType) -> Option<&'static str> {
    [
        (of.is_fifo(), "pipe"),
        (of.is_char_device() || of.is_block_device(), "device"),
        (of.is_socket(), "socket"),
    ]
    .into_iter()
    .find_map(|(is, kind)| is.then_some(kind))
}

/// Longest chain of symbolic links that [`descriptor`] follows. Linux follows 40, macOS 32.
const MAX_LINKS: usize = 40;

/// The open descriptor of this process that a path names, as a path in [`OPEN_FILES`]; `None` if it names
/// none.
pub fn descriptor(path: &Path) -> Option<PathBuf> {
    let own = Path::new(OPEN_FILES).canonicalize().ok()?;
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
