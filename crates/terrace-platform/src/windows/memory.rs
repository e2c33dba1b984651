//! Memory of the machine and of this process.

use super::call::{check, size};
use std::ffi::c_void;
use std::io;
use windows_sys::Win32::System::ProcessStatus::{
    K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS, PROCESS_MEMORY_COUNTERS_EX,
};
use windows_sys::Win32::System::SystemInformation::{
    GetSystemInfo, GlobalMemoryStatusEx, MEMORYSTATUSEX, SYSTEM_INFO,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// False: no files tell of swap, large pages and pressure.
pub const IS_TOLD_IN_FILES: bool = false;

/// Returns the bytes that can be allocated: RAM that is free or holds what can be read again, and no more than the
/// system still promises, of RAM and its paging file.
pub fn available() -> Option<u64> {
    status().map(|status| status.ullAvailPhys.min(status.ullAvailPageFile))
}

/// Returns the bytes of RAM, however much of it this process may use.
pub fn total() -> Option<u64> {
    status().map(|status| status.ullTotalPhys)
}

fn status() -> Option<MEMORYSTATUSEX> {
    let mut status = MEMORYSTATUSEX { dwLength: size::<MEMORYSTATUSEX>(), ..MEMORYSTATUSEX::default() };
    // SAFETY: room of the size that it states.
    check(unsafe { GlobalMemoryStatusEx(&raw mut status) }).ok()?;
    Some(status)
}

/// Returns the most bytes that this process had in RAM at a time.
pub fn peak_of_process() -> Option<u64> {
    counters().map(|counters| counters.PeakWorkingSetSize as u64)
}

/// The bytes that the system has promised to this process; 0 if it does not tell.
pub(super) fn committed() -> u64 {
    // The two say the same, since Windows 7.
    counters().map_or(0, |counters| counters.PrivateUsage.max(counters.PagefileUsage) as u64)
}

fn counters() -> Option<PROCESS_MEMORY_COUNTERS_EX> {
    let mut counters = PROCESS_MEMORY_COUNTERS_EX::default();
    let place = (&raw mut counters).cast::<PROCESS_MEMORY_COUNTERS>();
    let room = size::<PROCESS_MEMORY_COUNTERS_EX>();
    // SAFETY: this process, and room of that size, which tells the longer form.
    check(unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), place, room) }).ok()?;
    Some(counters)
}

/// Returns the size of a page in bytes; at least 4 KiB.
pub fn page_size() -> usize {
    let mut facts = SYSTEM_INFO::default();
    // SAFETY: room for the facts.
    unsafe { GetSystemInfo(&raw mut facts) };
    (facts.dwPageSize as usize).max(4096)
}

/// Does nothing: the system's heap takes large blocks one by one, and gives them back.
pub fn give_large_blocks_back() {}

/// Does nothing: the system takes pages of mapped files when it needs their memory.
///
/// # Safety
/// None.
pub unsafe fn forget_mapped(_: *mut c_void, _: usize) {}

/// The name of what empties the page cache, of which there is none.
pub const DROP_CACHES: &str = "the page cache";

/// Empties the page cache, which the system does not offer.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`].
pub fn drop_page_cache() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_plausible() {
        let (available, total) = (available().unwrap(), total().unwrap());
        assert!(available > 0 && total > 64 << 20, "{available} of {total}");
        assert!(peak_of_process().unwrap() > 1 << 20);
        assert!(committed() > 0);
        assert_eq!(page_size(), 4096);
        assert!(crate::processor::time() > std::time::Duration::ZERO || cfg!(miri));
        assert!(!crate::processor::name().is_empty());
        assert!(crate::names::machine().is_some());
    }
}
