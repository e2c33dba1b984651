pub use super::files::{
    descriptor, for_c, free_space, id, id_no_link, open_at_once, open_no_link, open_null, read_at, replace,
    shared, special_kind, state_at, state_of, stored_bytes, wait_again, write_at,
};

use super::file_map::FileMap;
use super::files::by_number;
use super::memory::page_size;
use crate::file::Advice;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder with this process's open files by their numbers. To open one there duplicates it.
pub const OPEN_FILES: &str = "/dev/fd";

/// Blocks of APFS, and of the solid-state disks below it. The system reads at any offset without its cache, and faster
/// at multiples of these.
const BLOCK: u64 = 4096;

/// The rest of a file is whatever it has when the advice is given. The system has no advice to drop pages: those of a
/// mapping are invalidated, as vmtouch does it.
pub fn advise(file: &File, offset: u64, len: Option<NonZeroU64>, advice: Advice) -> io::Result<()> {
    let rest = file.metadata()?.len().saturating_sub(offset);
    let len = len.map_or(rest, |len| len.get().min(rest));
    match advice {
        Advice::WillNeed => Ok(rustix::fs::fcntl_rdadvise(file, offset, len)?),
        Advice::DontNeed => {
            let end = usize::try_from(offset + len).map_err(io::Error::other)?;
            let start = usize::try_from(offset).map_err(io::Error::other)?.next_multiple_of(page_size());
            if start < end { invalidate(&FileMap::of(file, end)?, start) } else { Ok(()) }
        }
    }
}

/// Has the system drop cached pages of a mapped file, from an offset on that begins one.
fn invalidate(map: &FileMap, start: usize) -> io::Result<()> {
    let len = map.size() - start;
    // SAFETY: a part of the mapping, which is never written to: nothing is lost.
    let failed = unsafe { libc::msync(map.base().as_ptr().add(start).cast(), len, libc::MS_INVALIDATE) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub fn is_cached(file: &File, offset: u64) -> io::Result<bool> {
    let at = usize::try_from(offset).map_err(io::Error::other)?;
    let mut present = [0];
    if FileMap::of(file, at + 1)?.cached(at / page_size() * page_size(), 1, &mut present) {
        Ok(present[0] & 1 != 0)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub fn set_direct(file: &mut File, on: bool) -> io::Result<()> {
    Ok(rustix::fs::fcntl_nocache(file, on)?)
}

pub fn stated_alignment(_: &File) -> Option<u64> {
    Some(BLOCK)
}

pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    let now = file.metadata()?.len();
    let Some(more) = len.checked_sub(now).filter(|&more| more > 0) else { return Ok(()) };
    let mut asked = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: i64::try_from(more).map_err(io::Error::other)?,
        fst_bytesalloc: 0,
    };
    // SAFETY: an open file, and the structure that this command reads and writes.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw mut asked) } != 0 {
        let error = io::Error::last_os_error();
        // Not all file systems support it.
        if Errno::from_io_error(&error) != Some(Errno::NOTSUP) {
            return Err(error);
        }
    }
    file.set_len(len)
}

/// There are no files without a name that could get one.
pub fn nameless(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

pub fn name(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn scratch(folder: &Path) -> io::Result<(File, PathBuf)> {
    let file = tempfile::tempfile_in(folder)?;
    let path = by_number(file.as_raw_fd());
    Ok((file, path))
}

pub fn reopening_path(file: &File) -> Option<PathBuf> {
    let path = rustix::fs::getpath(file).ok()?;
    Some(OsString::from_vec(path.into_bytes()).into())
}

pub fn is_null(path: &Path) -> bool {
    let device = |path: &Path| {
        let meta = path.metadata().ok()?;
        meta.file_type().is_char_device().then(|| meta.rdev())
    };
    device(path).is_some_and(|number| device(Path::new("/dev/null")) == Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Positioned;

    #[test]
    fn a_file_gets_the_length_that_it_is_given_room_for() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"text", 0).unwrap();
        allocate(&file, 100_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
        allocate(&file, 4).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
    }

    #[test]
    fn what_was_dropped_is_not_cached() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let file = file.as_file_mut();
        file.write_all_at(&[7; 200_000], 0).unwrap();
        file.sync_all().unwrap();
        assert!(is_cached(file, 150_000).unwrap());
        advise(file, 0, None, Advice::DontNeed).unwrap();
        assert!(!is_cached(file, 150_000).unwrap());
        set_direct(file, true).unwrap();
        let mut bytes = [0; 10];
        file.read_exact_at(&mut bytes, 150_000).unwrap();
        assert_eq!(bytes, [7; 10]);
    }
}
