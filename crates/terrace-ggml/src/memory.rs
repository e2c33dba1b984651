//! Memory for weights, mapped in whole pages.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use terrace_model::ByteSize;

/// Bytes after the last row that compute kernels may read. ggml's own buffers have as many.
pub const SLACK: usize = 256;

/// An anonymous mapping.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<c_void>,
    len: usize,
    accessible: bool,
}

// SAFETY: plain memory. ggml's own rules for weights determine who writes to it.
unsafe impl Send for Pages {}
// SAFETY: as for Send.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` zero bytes (at least a page), which take RAM only once they are written.
    ///
    /// # Errors
    /// The system's error if there is no memory.
    pub fn new(len: usize) -> io::Result<Self> {
        let pages = Self::map(len, true)?;
        // Large pages if the kernel has them: weights are read from end to end, and page walks cost
        // noticeable time. Only a hint. SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(pages.base.as_ptr(), pages.len, libc::MADV_HUGEPAGE) };
        Ok(pages)
    }

    /// Reserves addresses without memory. Any access faults.
    ///
    /// # Errors
    /// The system's.
    pub fn reserved(len: usize) -> io::Result<Self> {
        Self::map(len, false)
    }

    fn map(len: usize, accessible: bool) -> io::Result<Self> {
        let len = len.max(4096);
        let protection = if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len, accessible })
    }

    /// Its lowest address.
    pub fn base(&self) -> *mut c_void {
        self.base.as_ptr()
    }

    /// Its size.
    pub fn size(&self) -> ByteSize {
        ByteSize(self.len as u64)
    }

    /// Its bytes; empty for [reserved](Pages::reserved) addresses.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = if self.accessible { self.len } else { 0 };
        // SAFETY: mapped readable and writable for `len` bytes, and borrowed mutably for as long as
        // the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().cast(), len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned, and nothing points into it any more: whoever lent out its
        // addresses has taken them back.
        unsafe { libc::munmap(self.base.as_ptr(), self.len) };
    }
}
