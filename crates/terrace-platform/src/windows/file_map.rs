//! Files mapped into memory for reading.

use super::call::owned;
use std::fs::File;
use std::io;
use std::os::windows::io::AsRawHandle;
use std::ptr::NonNull;
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_READ, MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_READONLY,
    PrefetchVirtualMemory, UnmapViewOfFile, WIN32_MEMORY_RANGE_ENTRY,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// A file, mapped. Nothing is read until it is accessed.
#[derive(Debug)]
pub struct FileMap {
    /// `None` for a file without bytes, which cannot be mapped.
    base: Option<NonNull<u8>>,
    len: usize,
}

// SAFETY: a read-only mapping that lives as long as the value.
unsafe impl Send for FileMap {}
// SAFETY: as for Send.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the first `len` bytes of a file. The mapping outlives the handle. An access to bytes that can no
    /// longer be read raises an exception ([`crate::bus_error`]).
    ///
    /// # Errors
    /// The system's.
    pub fn of(file: &File, len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { base: None, len });
        }
        let none = std::ptr::null();
        // SAFETY: an open file; a new mapping at an address of the system's choice, which keeps the section.
        let base = unsafe {
            let section =
                owned(CreateFileMappingW(file.as_raw_handle(), none, PAGE_READONLY, 0, 0, none.cast()))?;
            MapViewOfFile(section.as_raw_handle(), FILE_MAP_READ, 0, 0, len).Value
        };
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base: Some(base), len })
    }

    /// Returns the address of the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base.unwrap_or(NonNull::dangling())
    }

    /// Returns the length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// False: the system does not tell what the page cache holds.
    ///
    /// # Panics
    /// If the range does not lie in the mapping.
    pub fn cached(&self, offset: usize, len: usize, _: &mut [u8]) -> bool {
        self.check(offset, len);
        false
    }

    /// Brings a range into memory. A range that cannot be read is skipped: an access to it will fail.
    ///
    /// # Panics
    /// If the range does not lie in the mapping.
    pub fn populate(&self, offset: usize, len: usize) {
        self.check(offset, len);
        let Some(base) = self.base else { return };
        // SAFETY: within the mapping (asserted).
        let start = unsafe { base.as_ptr().add(offset) }.cast();
        let range = WIN32_MEMORY_RANGE_ENTRY { VirtualAddress: start, NumberOfBytes: len };
        // SAFETY: one range of this process; only a hint.
        unsafe { PrefetchVirtualMemory(GetCurrentProcess(), 1, &raw const range, 0) };
    }

    /// Has a range read, and does not wait for it. `offset` begins a page; a page that the system skips is read when it
    /// is accessed.
    ///
    /// # Panics
    /// If the range does not lie in the mapping.
    pub fn will_need(&self, offset: usize, len: usize) {
        // Prefetching does not wait either.
        self.populate(offset, len);
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{offset}+{len} of {} bytes", self.len);
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if let Some(base) = self.base {
            let view = MEMORY_MAPPED_VIEW_ADDRESS { Value: base.as_ptr().cast() };
            // SAFETY: the mapping is ours, and whoever has an address in it keeps this value.
            unsafe { UnmapViewOfFile(view) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_has_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let map = FileMap::of(&File::open(&path).unwrap(), 100_000).unwrap();
        map.populate(4096, 90_000);
        // SAFETY: the mapping of that length.
        let bytes = unsafe { std::slice::from_raw_parts(map.base().as_ptr(), map.size()) };
        assert!(bytes.iter().all(|&byte| byte == 7));
        assert!(FileMap::of(&File::open(&path).unwrap(), 100_001).is_err());
        std::fs::write(dir.path().join("none"), "").unwrap();
        assert_eq!(FileMap::of(&File::open(dir.path().join("none")).unwrap(), 0).unwrap().size(), 0);
    }
}
