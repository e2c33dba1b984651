//! Files mapped into memory for reading.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// A file, mapped. Nothing is read until it is accessed.
#[derive(Debug)]
pub struct FileMap {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a read-only mapping that lives as long as the value.
unsafe impl Send for FileMap {}
// SAFETY: as for Send.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the first `len` bytes of a file. The mapping outlives the descriptor. An access to bytes that
    /// the file no longer has raises a signal ([`crate::bus_error`]).
    ///
    /// # Errors
    /// The system's.
    pub fn of(file: &File, len: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let null = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { mmap(null, len.max(1), ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, len })
    }

    /// Returns the address of the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Writes for each page of a range whether the page cache holds it: the lowest bit of a byte. Returns
    /// false if the system does not tell. `offset` begins a page. For a file that this user may not write
    /// to, all pages count as present.
    ///
    /// # Panics
    /// If the range does not lie in the mapping, or there are fewer bytes than pages.
    pub fn cached(&self, offset: usize, len: usize, pages: &mut [u8]) -> bool {
        self.check(offset, len);
        assert!(pages.len() >= len.div_ceil(super::memory::page_size()), "a byte for each page");
        // SAFETY: the range lies in the mapping, and there is a byte for each of its pages (asserted).
        unsafe { libc::mincore(self.base.as_ptr().add(offset).cast(), len, pages.as_mut_ptr().cast()) == 0 }
    }

    /// Has a range read into the page cache, and does not wait for it. `offset` begins a page. The system may read less
    /// than was asked for, the more the longer the range; a page that it skips is read when it is accessed.
    ///
    /// # Panics
    /// If the range does not lie in the mapping.
    pub fn will_need(&self, offset: usize, len: usize) {
        self.check(offset, len);
        // SAFETY: the range lies in the mapping (asserted); reading ahead changes no contents.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, libc::MADV_WILLNEED) };
    }

    /// Brings a range into memory and into the page table. A range that cannot be read is skipped: an
    /// access to it will fail.
    ///
    /// # Panics
    /// If the range does not lie in the mapping.
    pub fn populate(&self, offset: usize, len: usize) {
        self.check(offset, len);
        // SAFETY: the range lies in the mapping (asserted); populating changes no contents.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, super::memory::POPULATE) };
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{offset}+{len} of {} bytes", self.len);
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever has an address in it keeps this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len.max(1)) };
    }
}
