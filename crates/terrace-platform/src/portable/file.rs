use crate::file::{Advice, FileId, State, Times};
use std::borrow::Cow;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(unix)]
pub fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, to, offset)
}

#[cfg(windows)]
pub fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    // It also moves the file's position, which nobody who reads by offsets relies on.
    std::os::windows::fs::FileExt::seek_read(file, to, offset)
}

#[cfg(unix)]
pub fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, from, offset)
}

#[cfg(windows)]
pub fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, from, offset)
}

#[cfg(unix)]
fn id(meta: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    FileId { device: meta.dev(), number: meta.ino() }
}

/// Plain std tells no number of a file here: files with the same times and length count as one.
#[cfg(not(unix))]
fn id(meta: &Metadata) -> FileId {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    (meta.created().ok(), meta.modified().ok(), meta.len()).hash(&mut hash);
    FileId { device: 0, number: hash.finish() }
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
    let modified = meta.modified().map_or(0, nanos);
    State { id: id(meta), len: meta.len(), times: Times { modified, changed: modified } }
}

fn nanos(time: SystemTime) -> i128 {
    let signed = |nanos: u128| i128::try_from(nanos).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => signed(since.as_nanos()),
        Err(before) => -signed(before.duration().as_nanos()),
    }
}

pub fn stored_bytes(path: &Path) -> io::Result<u64> {
    path.metadata().map(|meta| meta.len())
}

pub fn shared(file: File) -> io::Result<File> {
    Ok(file)
}

pub fn advise(_: &File, _: u64, _: Option<NonZeroU64>, _: Advice) -> io::Result<()> {
    Ok(())
}

pub fn is_cached(_: &File, _: u64) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn set_direct(_: &mut File, on: bool) -> io::Result<()> {
    if on { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
}

pub fn stated_alignment(_: &File) -> Option<u64> {
    Some(0)
}

pub fn allocate(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

pub fn free_space(_: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn nameless(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

pub fn scratch(_: &Path) -> io::Result<(File, PathBuf)> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn name(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[expect(clippy::disallowed_methods, reason = "this is where files are renamed")]
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

pub fn for_c(path: &Path) -> Cow<'_, Path> {
    path.into()
}

pub fn reopening_path(_: &File) -> Option<PathBuf> {
    None
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn open_at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.open(path)
}

/// Another process may put a link there between the two calls: plain std cannot exclude that.
pub fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => Err(io::Error::other("a symbolic link")),
        _ => open_at_once(options, path),
    }
}

pub fn wait_again(_: &File) -> io::Result<()> {
    Ok(())
}

pub fn open_null() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn is_null(_: &Path) -> bool {
    false
}

pub fn special_kind(of: FileType) -> Option<&'static str> {
    (!of.is_file() && !of.is_dir()).then_some("special file")
}

pub fn descriptor(_: &Path) -> Option<PathBuf> {
    None
}
