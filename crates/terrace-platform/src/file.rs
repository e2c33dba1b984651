//! Files: reading and writing at an offset, direct I/O, what the page cache holds, which file it is,
//! whose it is, and files without a name.

use crate::sys;
use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// Reading and writing at an offset, whatever the file's own position is.
pub trait Positioned {
    /// Reads once, and returns the number of bytes: fewer than there is room for mean the end of the
    /// file, or that the system returned early.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads until `to` is full.
    ///
    /// # Errors
    /// The system's, and [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all bytes.
    ///
    /// # Errors
    /// The system's.
    fn write_all_at(&self, from: &[u8], offset: u64) -> io::Result<()>;
}

impl Positioned for File {
    #[inline]
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        sys::file::read_at(self, to, offset)
    }

    #[inline]
    fn read_exact_at(&self, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !to.is_empty() {
            match self.read_at(to, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => (to, offset) = (&mut to[read..], offset + read as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut from: &[u8], mut offset: u64) -> io::Result<()> {
        while !from.is_empty() {
            match sys::file::write_at(self, from, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => (from, offset) = (&from[written..], offset + written as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Which file it is: two paths with one id lead to the same file. An id may be given again after its
/// file was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Number of the device or volume; 0 where the system does not tell.
    pub device: u64,
    /// Number of the file on it (inode, file index). Where the system does not tell, a number made of what it does
    /// tell: times and length.
    pub number: u64,
}

impl FileId {
    /// Returns the id of an open file.
    ///
    /// # Errors
    /// The system's.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(State::of(file)?.id)
    }

    /// Returns the id of the file at `path`, following links; `None` if there is none.
    pub fn at(path: &Path) -> Option<Self> {
        State::at(path).ok().map(|state| state.id)
    }

    /// Returns the id of the file or link at `path`; `None` if there is none.
    pub fn at_no_link(path: &Path) -> Option<Self> {
        sys::file::id_no_link(path).ok()
    }
}

/// When a file was last changed, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When its bytes were written, which programs can set.
    pub modified: i128,
    /// When its bytes, name or owner changed, which programs cannot set, or do not set by mistake. Where
    /// the system does not tell, as `modified`.
    pub changed: i128,
}

/// A file's identity, length and times at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Which file it is.
    pub id: FileId,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last changed.
    pub times: Times,
}

impl State {
    /// Returns the state of an open file.
    ///
    /// # Errors
    /// The system's.
    pub fn of(file: &File) -> io::Result<Self> {
        sys::file::state_of(file)
    }

    /// Returns the state of the file at `path`, following links.
    ///
    /// # Errors
    /// The system's.
    pub fn at(path: &Path) -> io::Result<Self> {
        sys::file::state_at(path)
    }
}

/// Returns the bytes that the file at `path` takes on its device, which are fewer than its length if it
/// has holes. Its length where the system does not tell.
///
/// # Errors
/// The system's.
pub fn stored_bytes(path: &Path) -> io::Result<u64> {
    sys::file::stored_bytes(path)
}

/// Returns the file for reads of several threads at a time, at offsets and with [`Positioned`] only. Where
/// the system lets one read of an open file wait for another, it is opened again in another way.
///
/// # Errors
/// The system's.
pub fn shared(file: File) -> io::Result<File> {
    sys::file::shared(file)
}

/// Advice to the page cache about a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read soon: the system may begin now.
    WillNeed,
    /// It will not be read again: the system may drop it. Pages that are dirty or mapped stay.
    DontNeed,
}

/// Advises the system on `len` bytes from `offset` on; `None` is the rest of the file.
///
/// # Errors
/// The system's. Where there is no such advice, nothing happens, which is no error.
pub fn advise(file: &File, offset: u64, len: Option<NonZeroU64>, advice: Advice) -> io::Result<()> {
    sys::file::advise(file, offset, len, advice)
}

/// Reads one byte if that needs no device: returns whether the page cache holds its page.
///
/// # Errors
/// The system's, and [`io::ErrorKind::Unsupported`] where this cannot be found out.
pub fn is_cached(file: &File, offset: u64) -> io::Result<bool> {
    sys::file::is_cached(file, offset)
}

/// Turns direct I/O on or off for a [`shared`] file. Where the system can do so for an open file, this holds
/// for all who share its descriptor; elsewhere the file is opened again.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the file system does not support it,
/// [`io::ErrorKind::Unsupported`] if the system does not; others of the system.
pub fn set_direct(file: &mut File, on: bool) -> io::Result<()> {
    sys::file::set_direct(file, on)
}

/// Returns the alignment of direct I/O in bytes that the system states for a file: 0 if it states that
/// there is none, `None` if it states nothing.
pub fn stated_alignment(file: &File) -> Option<u64> {
    sys::file::stated_alignment(file)
}

/// Allocates `len` bytes for a file, as far as its file system can: a full disk is then an error now,
/// and not after hours of computing.
///
/// # Errors
/// The system's.
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    sys::file::allocate(file, len)
}

/// Returns the bytes that this user can still write to the file system of `path`.
///
/// # Errors
/// The system's, and [`io::ErrorKind::Unsupported`] if it does not tell.
pub fn free_space(path: &Path) -> io::Result<u64> {
    sys::file::free_space(path)
}

/// Opens a file without a name in `folder`, which vanishes when it is closed unless [`name`] gives it a
/// name. `None` if the system or the file system has no such files.
///
/// # Errors
/// The system's.
pub fn nameless(folder: &Path) -> io::Result<Option<File>> {
    sys::file::nameless(folder)
}

/// Makes a file in `folder` that vanishes with the process, however that ends, and returns it with a path by which
/// this process can open it again.
///
/// # Errors
/// The system's, and [`io::ErrorKind::Unsupported`] if there is no such path.
pub fn scratch(folder: &Path) -> io::Result<(File, PathBuf)> {
    sys::file::scratch(folder)
}

/// Gives a [`nameless`] file a name.
///
/// # Errors
/// The system's; [`io::ErrorKind::AlreadyExists`] if there is a file of that name.
pub fn name(file: &File, path: &Path) -> io::Result<()> {
    sys::file::name(file, path)
}

/// Gives the file at `from` the name `to`, in one step. It takes the place of a file that has that name.
///
/// # Errors
/// The system's.
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    sys::file::replace(from, to)
}

/// Returns a path by which this process can open an open file again, whatever name it was opened by; `None`
/// where there is none. On systems that know open files by their names only, it is the name that the file
/// has now.
pub fn reopening_path(file: &File) -> Option<PathBuf> {
    sys::file::reopening_path(file)
}

/// Opens a file without waiting for the other end of a pipe, and without making a terminal this
/// process's own, as far as the system can.
///
/// # Errors
/// The system's.
pub fn open_at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    sys::file::open_at_once(options, path)
}

/// Opens a file as [`open_at_once`] does, unless the path itself is a symbolic link.
///
/// # Errors
/// The system's, and one for links.
pub fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    sys::file::open_no_link(options, path)
}

/// Opens a device that has no bytes and is the same everywhere, to keep a place among files.
///
/// # Errors
/// The system's, and [`io::ErrorKind::Unsupported`] if it has no such device.
pub fn open_null() -> io::Result<File> {
    sys::file::open_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_have_places_of_their_own() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"abcdef", 3).unwrap();
        file.write_all_at(b"xyz", 0).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 2).unwrap();
        assert_eq!(&bytes, b"zabc");
        assert_eq!(file.read_at(&mut bytes, 7).unwrap(), 2);
        assert_eq!(file.read_exact_at(&mut bytes, 7).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_file_is_the_same_one_by_every_path() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::write(&one, "text").unwrap();
        assert_eq!(FileId::at(&two), None);
        std::fs::hard_link(&one, &two).unwrap();
        assert_eq!(FileId::at(&one), FileId::at(&two));
        std::fs::remove_file(&two).unwrap();
        std::fs::write(&two, "other text").unwrap();
        assert_ne!(FileId::at(&one), FileId::at(&two));
    }

    #[test]
    fn a_nameless_file_gets_a_name_that_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let Some(file) = nameless(dir.path()).unwrap() else { return };
        file.write_all_at(b"text", 0).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        name(&file, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        assert_eq!(name(&file, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn an_open_file_can_be_opened_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = file.as_file();
        file.write_all_at(b"text", 0).unwrap();
        if let Some(path) = reopening_path(file) {
            assert_eq!(std::fs::read(path).unwrap(), b"text");
        }
    }
}
