use crate::file::{Advice, FileId, State, Times};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::borrow::Cow;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
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

pub fn free_space(path: &Path) -> io::Result<u64> {
    let space = rustix::fs::statvfs(path)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

pub fn nameless(folder: &Path) -> io::Result<Option<File>> {
    // Without this folder the file could not be named later.
    if !Path::new("/proc/self/fd").exists() {
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

#[expect(clippy::disallowed_methods, reason = "this is where files are renamed")]
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

pub fn for_c(path: &Path) -> Cow<'_, Path> {
    path.into()
}

pub fn reopening_path(file: &File) -> Option<PathBuf> {
    Some(by_number(file.as_raw_fd()))
}

fn by_number(descriptor: i32) -> PathBuf {
    format!("/proc/self/fd/{descriptor}").into()
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn open_at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits().cast_signed()).open(path)
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    options.custom_flags(flags.bits().cast_signed()).open(path)
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

/// The number of the device `/dev/null`: 1, 3.
const NULL: u64 = (1 << 8) | 3;

pub fn is_null(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_char_device() && meta.rdev() == NULL)
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

/// Longest chain of symbolic links that [`descriptor`] follows. Linux follows 40.
const MAX_LINKS: usize = 40;

/// The open descriptor of this process that a path names, as a path below `/proc/self/fd`; `None` if
/// it names none.
pub fn descriptor(path: &Path) -> Option<PathBuf> {
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
