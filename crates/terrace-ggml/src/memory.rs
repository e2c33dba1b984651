//! Memory for weights, in whole pages from the kernel.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use terrace_model::ByteSize;

/// Bytes after the last row that kernels may read (ggml's own buffers have as many).
pub const SLACK: usize = 256;

/// An anonymous mapping.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<c_void>,
    len: usize,
    accessible: bool,
}

// SAFETY: plain memory; ggml's own rules for weights decide what writes to it.
unsafe impl Send for Pages {}
// SAFETY: as for Send.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes (at least a page) of zeros, which take RAM when they are first written.
    ///
    /// # Errors
    /// The system's: no memory.
    pub fn new(len: usize) -> io::Result<Self> {
        let pages = Self::map(len, true)?;
        // Large pages where the kernel has them: weights are swept, and their page walks show. Advice only.
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(pages.base.as_ptr(), pages.len, libc::MADV_HUGEPAGE) };
        Ok(pages)
    }

    /// Addresses without memory: any access faults.
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

    /// How many bytes it has.
    pub fn size(&self) -> ByteSize {
        ByteSize(self.len as u64)
    }

    /// Its bytes; [reserved](Pages::reserved) addresses have none.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = if self.accessible { self.len } else { 0 };
        // SAFETY: mapped readable and writable for `len` bytes, and borrowed mutably for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().cast(), len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more: the lender of its addresses has taken them back.
        unsafe { libc::munmap(self.base.as_ptr(), self.len) };
    }
}
