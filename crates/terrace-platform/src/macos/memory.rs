//! Memory of the machine and of this process.

use super::sysctl;
use rustix::mm::{self, MapFlags, ProtFlags};
use std::ffi::{c_int, c_void};
use std::io;
use std::process::{Command, Stdio};

/// False: no files tell of swap, large pages and pressure.
pub const IS_TOLD_IN_FILES: bool = false;

/// Returns the bytes of RAM that are free, or hold what can be read again or has not been used for long. There is no
/// estimate of the system's own.
pub fn available() -> Option<u64> {
    let statistics = statistics()?;
    let pages = u64::from(statistics.free_count) + u64::from(statistics.inactive_count);
    Some(pages * page_size() as u64)
}

#[expect(deprecated, reason = "libc has these functions until another crate is needed for more of Mach")]
fn statistics() -> Option<libc::vm_statistics64> {
    let mut count = libc::HOST_VM_INFO64_COUNT;
    // SAFETY: zeros are a value of this plain structure of numbers; the call writes at most `count` of them.
    unsafe {
        let mut statistics: libc::vm_statistics64 = std::mem::zeroed();
        let to = (&raw mut statistics).cast();
        let result =
            libc::host_statistics64(libc::mach_host_self(), libc::HOST_VM_INFO64, to, &raw mut count);
        (result == libc::KERN_SUCCESS).then_some(statistics)
    }
}

/// Returns the bytes of RAM, however much of it this process may use.
pub fn total() -> Option<u64> {
    sysctl::number(c"hw.memsize")
}

/// Returns the most bytes that this process had in RAM at a time.
pub fn peak_of_process() -> Option<u64> {
    // SAFETY: zeros are a value of this plain structure, which the call fills.
    unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &raw mut used) != 0 {
            return None;
        }
        // In bytes, unlike Linux's.
        u64::try_from(used.ru_maxrss).ok()
    }
}

/// Returns the bytes that the system counts as this process's own: what it has written, compressed and swapped out
/// included.
pub(super) fn footprint() -> Option<u64> {
    let process = c_int::try_from(std::process::id()).ok()?;
    // SAFETY: zeros are a value of this plain structure, which is that of the version that is asked for.
    unsafe {
        let mut used: libc::rusage_info_v2 = std::mem::zeroed();
        let result = libc::proc_pid_rusage(process, libc::RUSAGE_INFO_V2, (&raw mut used).cast());
        (result == 0).then_some(used.ri_phys_footprint)
    }
}

/// Returns the size of a page in bytes: 16 KiB on Apple's processors.
pub fn page_size() -> usize {
    rustix::param::page_size().max(4096)
}

/// Does nothing: the allocator unmaps large blocks when they are freed.
pub fn give_large_blocks_back() {}

/// Marks pages of a mapped file as those to be taken out of memory first. They are read again where they are touched.
///
/// # Safety
/// The range is whole pages that are mapped from a file, and the process does not write there.
pub unsafe fn forget_mapped(start: *mut c_void, len: usize) {
    // SAFETY: by the contract nothing is lost.
    unsafe { libc::madvise(start, len, libc::MADV_DONTNEED) };
}

/// Asks for large pages, of which there are none.
///
/// # Safety
/// None is needed.
pub(super) unsafe fn ask_for_large(_: *mut c_void, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the RAM of whole pages to the system, by mapping others in their place. They are zero afterwards.
///
/// # Safety
/// The range is whole pages of an anonymous mapping that can be written to, and no address in it is in use.
pub(super) unsafe fn give_back(start: *mut c_void, len: usize) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: by the contract, what was there is not used any more.
    unsafe { mm::mmap_anonymous(start, len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
    Ok(())
}

/// Advice that has pages of a mapped file read. None waits for them.
pub(super) const POPULATE: c_int = libc::MADV_WILLNEED;

/// The program that empties the page cache.
pub const DROP_CACHES: &str = "/usr/sbin/purge";

/// Writes all files to their disks and empties the page cache, which only the administrator may.
///
/// # Errors
/// The system's.
pub fn drop_page_cache() -> io::Result<()> {
    let status = Command::new(DROP_CACHES).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_uses_some() {
        assert!(available().unwrap() > 16 << 20);
        assert!(total() >= available());
        assert!(peak_of_process().unwrap() > 64 << 10);
        assert!(footprint().unwrap() > 64 << 10);
    }
}
