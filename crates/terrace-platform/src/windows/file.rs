use super::call::{check, long, owned, size, text, verbatim};
use crate::file::{Advice, FileId, State, Times};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::ffi::{OsString, c_void};
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_HANDLE_EOF, ERROR_IO_PENDING, ERROR_SHARING_VIOLATION, GENERIC_READ, HANDLE,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ALIGNMENT_INFO, FILE_ALLOCATION_INFO, FILE_BASIC_INFO,
    FILE_COMPRESSION_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_DELETE_ON_CLOSE, FILE_FLAG_NO_BUFFERING,
    FILE_FLAG_OPEN_REPARSE_POINT, FILE_FLAG_OVERLAPPED, FILE_INFO_BY_HANDLE_CLASS, FILE_NAME_NORMALIZED,
    FILE_READ_ATTRIBUTES, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_STORAGE_INFO,
    FileAlignmentInfo, FileAllocationInfo, FileBasicInfo, FileCompressionInfo, FileStorageInfo,
    GETFINALPATHNAMEBYHANDLE_FLAGS, GetDiskFreeSpaceExW, GetFileInformationByHandle,
    GetFileInformationByHandleEx, GetFinalPathNameByHandleW, ReOpenFile, ReadFile,
    SetFileInformationByHandle, VOLUME_NAME_DOS, VOLUME_NAME_NT, WriteFile,
};
use windows_sys::Win32::System::IO::{GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Threading::CreateEventW;
use windows_sys::core::BOOL;

/// Most bytes of one call: what its number has room for, in whole sectors of any size.
const MOST: usize = 1 << 30;

/// Time for which a file is tried to be replaced.
const RENAME_FOR: Duration = Duration::from_secs(1);

pub fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    let (address, len) = (to.as_mut_ptr(), to.len().min(MOST) as u32);
    let read = |count: *mut u32, place: *mut OVERLAPPED| {
        // SAFETY: room of that length, which is borrowed until the call has completed (`transfer`).
        unsafe { ReadFile(file.as_raw_handle(), address, len, count, place) }
    };
    match transfer(file, offset, read) {
        Err(error) if error.raw_os_error() == Some(ERROR_HANDLE_EOF.cast_signed()) => Ok(0),
        done => done,
    }
}

pub fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    let (address, len) = (from.as_ptr(), from.len().min(MOST) as u32);
    transfer(file, offset, |count, place| {
        // SAFETY: bytes of that length, which are borrowed until the call has completed (`transfer`).
        unsafe { WriteFile(file.as_raw_handle(), address, len, count, place) }
    })
}

/// Starts a transfer at an offset, and waits for its end: for files that were opened for overlapped
/// transfers, `start` returns before that. With others it also moves the file's position, which nobody who
/// reads by offsets relies on.
fn transfer(
    file: &File,
    offset: u64,
    start: impl FnOnce(*mut u32, *mut OVERLAPPED) -> BOOL,
) -> io::Result<usize> {
    thread_local! {
        /// Waiting for the file itself would be woken by other threads' transfers.
        static ENDED: OnceCell<OwnedHandle> = const { OnceCell::new() };
    }
    ENDED.with(|ended| {
        let event = match ended.get() {
            Some(event) => event,
            None => {
                // SAFETY: an event of this thread's own: without a name, reset by each transfer.
                let event = unsafe { owned(CreateEventW(std::ptr::null(), 1, 0, std::ptr::null())) }?;
                ended.get_or_init(|| event)
            }
        };
        let mut place = OVERLAPPED { hEvent: event.as_raw_handle(), ..OVERLAPPED::default() };
        place.Anonymous.Anonymous.Offset = offset as u32;
        place.Anonymous.Anonymous.OffsetHigh = (offset >> 32) as u32;
        let mut count = 0;
        if start(&raw mut count, &raw mut place) == 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(ERROR_IO_PENDING.cast_signed()) {
                return Err(error);
            }
            // SAFETY: the transfer that was started with this place; the call waits for its end, so that the
            // place and the caller's bytes outlive it.
            check(unsafe { GetOverlappedResult(file.as_raw_handle(), &raw const place, &raw mut count, 1) })?;
        }
        Ok(count as usize)
    })
}

pub fn state_of(file: &File) -> io::Result<State> {
    let mut facts = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: an open file, and room for the facts.
    check(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut facts) })?;
    let joined = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let written = facts.ftLastWriteTime;
    let modified = nanos(joined(written.dwHighDateTime, written.dwLowDateTime).cast_signed());
    let basic: Option<FILE_BASIC_INFO> = info(file, FileBasicInfo).ok();
    // File systems without this time say 0.
    let changed = basic.filter(|basic| basic.ChangeTime != 0).map_or(modified, |it| nanos(it.ChangeTime));
    Ok(State {
        id: FileId {
            device: facts.dwVolumeSerialNumber.into(),
            number: joined(facts.nFileIndexHigh, facts.nFileIndexLow),
        },
        len: joined(facts.nFileSizeHigh, facts.nFileSizeLow),
        times: Times { modified, changed },
    })
}

/// Nanoseconds since 1970 of a time in units of 100 ns since 1601.
fn nanos(time: i64) -> i128 {
    (i128::from(time) - 116_444_736_000_000_000) * 100
}

pub fn state_at(path: &Path) -> io::Result<State> {
    state_of(&to_ask(path, FILE_FLAG_BACKUP_SEMANTICS)?)
}

pub fn id_no_link(path: &Path) -> io::Result<FileId> {
    let file = to_ask(path, FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)?;
    Ok(state_of(&file)?.id)
}

/// Opens a file, or a folder, only to ask about it.
#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn to_ask(path: &Path, flags: u32) -> io::Result<File> {
    OpenOptions::new().access_mode(FILE_READ_ATTRIBUTES).custom_flags(flags).open(path)
}

/// Asks for facts of one kind, whose structure is `T`.
fn info<T: Default>(file: &File, kind: FILE_INFO_BY_HANDLE_CLASS) -> io::Result<T> {
    let mut facts = T::default();
    let place: *mut c_void = (&raw mut facts).cast();
    // SAFETY: an open file, and room of that size.
    check(unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), kind, place, size::<T>()) })?;
    Ok(facts)
}

pub fn stored_bytes(path: &Path) -> io::Result<u64> {
    let file = to_ask(path, 0)?;
    match info::<FILE_COMPRESSION_INFO>(&file, FileCompressionInfo) {
        Ok(info) => Ok(info.CompressedFileSize.cast_unsigned()),
        // Not all file systems tell.
        Err(_) => Ok(file.metadata()?.len()),
    }
}

/// Without the flag, the system lets each transfer wait for the one before it.
pub fn shared(file: File) -> io::Result<File> {
    again(&file, FILE_FLAG_OVERLAPPED)
}

pub fn set_direct(file: &mut File, on: bool) -> io::Result<()> {
    let flags = if on { FILE_FLAG_NO_BUFFERING } else { 0 };
    *file = again(file, FILE_FLAG_OVERLAPPED | flags)?;
    Ok(())
}

/// Opens an open file for reading in another way, whatever its name is now.
fn again(file: &File, flags: u32) -> io::Result<File> {
    let others = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: an open file; the handle is a new one.
    Ok(unsafe { owned(ReOpenFile(file.as_raw_handle(), GENERIC_READ, others, flags)) }?.into())
}

pub fn advise(_: &File, _: u64, _: Option<NonZeroU64>, _: Advice) -> io::Result<()> {
    Ok(())
}

pub fn is_cached(_: &File, _: u64) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Offsets and lengths are in whole sectors; addresses have a requirement of their own.
pub fn stated_alignment(file: &File) -> Option<u64> {
    let storage: FILE_STORAGE_INFO = info(file, FileStorageInfo).ok()?;
    let address: FILE_ALIGNMENT_INFO = info(file, FileAlignmentInfo).unwrap_or_default();
    let sector = u64::from(storage.LogicalBytesPerSector);
    (sector > 0).then(|| sector.max(u64::from(address.AlignmentRequirement) + 1))
}

pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    let wanted = FILE_ALLOCATION_INFO { AllocationSize: i64::try_from(len).unwrap_or(i64::MAX) };
    let (place, len) = ((&raw const wanted).cast(), size::<FILE_ALLOCATION_INFO>());
    // SAFETY: an open file, and a structure of that kind and size.
    let set = check(unsafe { SetFileInformationByHandle(handle(file), FileAllocationInfo, place, len) });
    match set {
        // Not all file systems support it.
        Err(error) if error.kind() != io::ErrorKind::StorageFull => Ok(()),
        set => set,
    }
}

fn handle(file: &File) -> HANDLE {
    file.as_raw_handle()
}

pub fn free_space(path: &Path) -> io::Result<u64> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    // The names of shares need a separator at the end.
    let name = long(&folder.join(""))?;
    let mut free = 0;
    let none = std::ptr::null_mut();
    // SAFETY: a name that ends with zero, and room for a number; the others are not asked for.
    check(unsafe { GetDiskFreeSpaceExW(name.as_ptr(), &raw mut free, none, none) })?;
    Ok(free)
}

pub fn nameless(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn scratch(folder: &Path) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".terrace-{}-{number}.tmp", std::process::id()));
    // The rights to share are those of Rust's files: all, so that it can be opened again.
    let options = &mut OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(FILE_FLAG_DELETE_ON_CLOSE)
        .open(&path)?;
    Ok((file, path))
}

pub fn name(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Programs that look at new files, such as virus scanners, keep them from being renamed for a moment.
#[expect(clippy::disallowed_methods, reason = "this is where files are renamed")]
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    const HELD: [u32; 2] = [ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION];
    let until = Instant::now() + RENAME_FOR;
    loop {
        match std::fs::rename(from, to) {
            Err(error)
                if error.raw_os_error().is_some_and(|code| HELD.contains(&code.cast_unsigned()))
                    && to.is_file()
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Unlike Rust, the C library leaves names as they are, and the system takes longer ones only if they begin with
/// `\\\\?\\`.
pub fn for_c(path: &Path) -> Cow<'_, Path> {
    /// Less than 260, which counts the zero at the end: folders leave room for a name of the old form.
    const SHORT: usize = 248;
    match std::path::absolute(path) {
        Ok(whole) if whole.as_os_str().len() >= SHORT => verbatim(&whole).map_or(path.into(), Cow::Owned),
        _ => path.into(),
    }
}

pub fn reopening_path(file: &File) -> Option<PathBuf> {
    name_of(file, VOLUME_NAME_DOS).or_else(|| device_name(file))
}

/// The name by which a file is found whose volume has neither letter nor folder, as those of some RAM disks.
fn device_name(file: &File) -> Option<PathBuf> {
    let mut name = OsString::from(r"\\?\GLOBALROOT");
    name.push(name_of(file, VOLUME_NAME_NT)?);
    Some(name.into())
}

fn name_of(file: &File, form: GETFINALPATHNAMEBYHANDLE_FLAGS) -> Option<PathBuf> {
    let name = text(|room| {
        let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
        let form = FILE_NAME_NORMALIZED | form;
        // SAFETY: an open file, and room of that length.
        unsafe { GetFinalPathNameByHandleW(handle(file), room.as_mut_ptr(), len, form) }
    });
    Some(name.ok()?.into())
}

#[expect(clippy::disallowed_methods, reason = "this is where files are opened")]
pub fn open_at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.open(path)
}

pub fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let link = || io::Error::other("a symbolic link");
    if path.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
        return Err(link());
    }
    let file = open_at_once(options, path)?;
    // Another process may have put a link there meanwhile.
    if state_of(&file)?.id == id_no_link(path)? { Ok(file) } else { Err(link()) }
}

pub fn wait_again(_: &File) -> io::Result<()> {
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a device that is the same everywhere")]
pub fn open_null() -> io::Result<File> {
    File::open("NUL")
}

/// The system turns the names of devices, in whatever folder and case, into those of a folder of devices.
pub fn is_null(path: &Path) -> bool {
    std::path::absolute(path).is_ok_and(|path| path.as_os_str().eq_ignore_ascii_case(r"\\.\NUL"))
}

pub fn special_kind(of: FileType) -> Option<&'static str> {
    (!of.is_file() && !of.is_dir()).then_some("device")
}

pub fn descriptor(_: &Path) -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Positioned;
    use crate::pages::Pages;
    use std::io::Write;

    /// A file of 64 KiB in which each sector of 512 bytes has another byte.
    fn written(folder: &Path) -> PathBuf {
        let path = folder.join("a file");
        let bytes: Vec<u8> = (0..128u8).flat_map(|sector| [sector; 512]).collect();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn threads_share_a_file_that_is_read_directly() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = shared(File::open(written(dir.path())).unwrap()).unwrap();
        for direct in [false, true] {
            set_direct(&mut file, direct).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4u64 {
                    let file = &file;
                    scope.spawn(move || {
                        let pages = Pages::new(4096).unwrap();
                        // SAFETY: a page of this thread's own.
                        let page = unsafe { std::slice::from_raw_parts_mut(pages.base().as_ptr(), 4096) };
                        for round in 0..100 {
                            let block = (thread * 5 + round) % 16;
                            file.read_exact_at(page, block * 4096).unwrap();
                            assert!(
                                page.chunks(512).zip(8 * block as u8..).all(|(s, byte)| s == [byte; 512])
                            );
                        }
                    });
                }
            });
            let mut bytes = [0; 4096];
            assert_eq!(file.read_at(&mut bytes, 1 << 20).unwrap(), 0, "after the end");
        }
    }

    #[test]
    fn a_file_stays_the_same_one_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (written(dir.path()), dir.path().join("another name"));
        let file = File::open(&path).unwrap();
        let before = state_of(&file).unwrap();
        assert_eq!(before, state_at(&path).unwrap());
        assert_eq!((before.len, before.id), (64 << 10, id_no_link(&path).unwrap()));
        assert_eq!(state_at(&reopening_path(&file).unwrap()).unwrap().id, before.id);
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(state_at(&other).unwrap().id, before.id);
        std::fs::write(&path, "x").unwrap();
        assert_ne!(state_at(&path).unwrap().id, before.id);
        assert_eq!(state_of(&file).unwrap().id, before.id);
        drop(file);
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"x");
    }

    #[test]
    fn long_names_can_be_asked_about() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a".repeat(150)).join("ä ".repeat(50) + "b");
        std::fs::create_dir_all(&folder).unwrap();
        let path = written(&folder);
        assert!(path.as_os_str().len() > 260);
        assert_eq!(state_at(&path).unwrap().len, 64 << 10);
        assert!(stored_bytes(&path).unwrap() > 0);
        assert!(free_space(&path).unwrap() > 1 << 20);
        let name = for_c(&path);
        assert!(name.to_str().unwrap().starts_with(r"\\?\"), "{name:?}");
        assert_eq!(FileId::at(&name), FileId::at(&path));
        assert_eq!(for_c(dir.path()), dir.path());
    }

    #[test]
    fn a_scratch_file_can_be_opened_again_and_vanishes() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, path) = scratch(dir.path()).unwrap();
        file.write_all(b"text").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        drop(file);
        assert!(!path.exists());
        assert!(open_null().is_ok());
    }

    #[test]
    fn the_device_without_bytes_has_many_names() {
        for name in ["NUL", "nul", r"\\.\NUL", r"\\.\nul"] {
            assert!(is_null(Path::new(name)), "{name}");
            assert_eq!(crate::input_file::read_text(Path::new(name), 9).unwrap(), "");
        }
        for name in ["NULL", "a NUL", "NUL/file", "."] {
            assert!(!is_null(Path::new(name)), "{name}");
        }
    }
}
