//! Memory of the machine and of this process.

use crate::input_file::{self, MAX_SETTINGS};
use rustix::mm;
use std::ffi::{c_int, c_void};
use std::io;
use std::path::Path;

/// True if files in `/proc` and `/sys` tell of swap, large pages and pressure.
pub const IS_TOLD_IN_FILES: bool = true;

/// Returns the system's estimate of the bytes that can be allocated without swapping, regardless of
/// control groups.
pub fn available() -> Option<u64> {
    field(&text("/proc/meminfo")?, "MemAvailable:")
}

/// Returns the bytes of RAM, however much of it this process may use.
pub fn total() -> Option<u64> {
    field(&text("/proc/meminfo")?, "MemTotal:")
}

/// Returns the most bytes that this process had in RAM at a time.
pub fn peak_of_process() -> Option<u64> {
    field(&text("/proc/self/status")?, "VmHWM:")
}

fn text(path: &str) -> Option<String> {
    input_file::read_regular_text(Path::new(path), MAX_SETTINGS).ok()
}

/// Finds a line `Key:   123 kB` and returns its value in bytes.
fn field(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the size of a page in bytes; at least 4 KiB.
pub fn page_size() -> usize {
    rustix::param::page_size().max(4096)
}

/// Makes the allocator map large blocks one by one, and unmap them when they are freed. By default glibc
/// stops doing so: its threshold follows the largest freed block.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: two settings of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

/// Takes pages of a mapped file out of this process's memory. They are mapped again where they are
/// touched.
///
/// # Safety
/// The range is whole pages that are mapped from a file, and the process does not write there.
pub unsafe fn forget_mapped(start: *mut c_void, len: usize) {
    // SAFETY: by the contract nothing is lost.
    unsafe { libc::madvise(start, len, libc::MADV_DONTNEED) };
}

/// Asks for large pages.
///
/// # Safety
/// The range is whole pages of an anonymous mapping.
pub(super) unsafe fn ask_for_large(start: *mut c_void, len: usize) -> io::Result<()> {
    // SAFETY: by the contract; the advice changes what backs the memory, not its contents.
    unsafe { mm::madvise(start, len, mm::Advice::LinuxHugepage)? };
    Ok(())
}

/// Returns the RAM of whole pages to the system. They are zero afterwards.
///
/// # Safety
/// As for [`ask_for_large`], and no address in the range is in use.
pub(super) unsafe fn give_back(start: *mut c_void, len: usize) -> io::Result<()> {
    // SAFETY: by the contract.
    unsafe { mm::madvise(start, len, mm::Advice::LinuxDontNeed)? };
    Ok(())
}

/// Advice that has pages of a mapped file read, and waits for them.
pub(super) const POPULATE: c_int = libc::MADV_POPULATE_READ;

/// The file that empties the page cache when it is written to.
pub const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Writes all files to their disks and empties the page cache, which only the administrator may.
///
/// # Errors
/// The system's.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub fn drop_page_cache() -> io::Result<()> {
    rustix::fs::sync();
    std::fs::write(DROP_CACHES, "1\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_uses_some() {
        assert!(available().unwrap() > 16 << 20);
        assert!(total() >= available());
        assert!(peak_of_process().unwrap() > 64 << 10);
        assert_eq!(field("a: 1 kB\nVmHWM:\t  12 kB\n", "VmHWM:"), Some(12288));
    }
}
