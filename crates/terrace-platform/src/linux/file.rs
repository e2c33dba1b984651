pub use super::files::{
    descriptor, for_c, free_space, id, id_no_link, open_at_once, open_no_link, open_null, read_at, replace,
    shared, special_kind, state_at, state_of, stored_bytes, wait_again, write_at,
};

use super::files::by_number;
use crate::file::Advice;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder with this process's open files by their numbers.
pub const OPEN_FILES: &str = "/proc/self/fd";

pub fn advise(file: &File, offset: u64, len: Option<NonZeroU64>, advice: Advice) -> io::Result<()> {
    let advice = match advice {
        Advice::WillNeed => rustix::fs::Advice::WillNeed,
        Advice::DontNeed => rustix::fs::Advice::DontNeed,
    };
    Ok(rustix::fs::fadvise(file, offset, len, advice)?)
}

pub fn is_cached(file: &File, offset: u64) -> io::Result<bool> {
    let mut byte = [0];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub fn set_direct(file: &mut File, on: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(&*file)?;
    flags.set(OFlags::DIRECT, on);
    Ok(rustix::fs::fcntl_setfl(&*file, flags)?)
}

/// Linux states it since 6.1.
pub fn stated_alignment(file: &File) -> Option<u64> {
    let stat = rustix::fs::statx(file, Path::new(""), AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if !StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN) {
        return None;
    }
    let offset = u64::from(stat.stx_dio_offset_align);
    Some(if offset == 0 { 0 } else { offset.max(u64::from(stat.stx_dio_mem_align)) })
}

pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        // Not all file systems support it.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => Ok(other?),
    }
}

pub fn nameless(folder: &Path) -> io::Result<Option<File>> {
    // Without this folder the file could not be named later.
    if !Path::new(OPEN_FILES).exists() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        // The errors of file systems without nameless files, and of kernels that do not know the
        // flag.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub fn scratch(folder: &Path) -> io::Result<(File, PathBuf)> {
    let file = tempfile::tempfile_in(folder)?;
    let path = by_number(file.as_raw_fd());
    Ok((file, path))
}

pub fn name(file: &File, path: &Path) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, by_number(file.as_raw_fd()), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

pub fn reopening_path(file: &File) -> Option<PathBuf> {
    Some(by_number(file.as_raw_fd()))
}

/// The number of the device `/dev/null`: 1, 3.
const NULL: u64 = (1 << 8) | 3;

pub fn is_null(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_char_device() && meta.rdev() == NULL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input_file::{open, open_no_link, read, read_regular, read_regular_text, read_text};
    use crate::own_file::{Form, OwnFile};
    use rustix::fs::{FileType as Kind, mknodat};
    use std::io::Write;
    use std::os::unix::fs::symlink;

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
    fn files_of_the_kernel_state_no_length() {
        let status = Path::new("/proc/self/status");
        assert!(read_regular(status, 10).is_err());
        assert!(read_regular_text(status, 1 << 20).unwrap().contains("VmRSS"));
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

    #[test]
    fn links_of_own_files_count_as_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        const TRACE: OwnFile = OwnFile::new("a trace", Form::Begins(b"TRACE"));
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        symlink(&file, &link).unwrap();
        TRACE.check(&link).unwrap();
        assert!(TRACE.check_no_link(&link).is_err());
        std::fs::write(&file, "text").unwrap();
        assert!(TRACE.check(&link).is_err());
        std::fs::write(&file, "TRACE").unwrap();
        TRACE.check(&link).unwrap();
        assert!(TRACE.check_no_link(&link).is_err());
        TRACE.check_no_link(&file).unwrap();
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
}
