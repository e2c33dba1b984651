//! Memory for weights, mapped in whole pages.

use std::ffi::c_void;
use std::io;
use terrace_model::ByteSize;
use terrace_platform::pages;

/// Bytes after the last row that compute kernels may read. ggml's own buffers have as many.
pub const SLACK: usize = 256;

/// Fewest bytes of a mapping.
const LEAST: usize = 4096;

/// An anonymous mapping. ggml's own rules for weights determine who writes to it.
#[derive(Debug)]
pub struct Pages {
    pages: pages::Pages,
    accessible: bool,
}

impl Pages {
    /// Maps `len` zero bytes (at least a page), which take RAM only once they are written.
    ///
    /// # Errors
    /// The system's error if there is no memory.
    pub fn new(len: usize) -> io::Result<Self> {
        let pages = pages::Pages::new(len.max(LEAST))?;
        // Weights are read from end to end, and page walks cost noticeable time. Only a hint.
        let _ = pages.ask_for_large();
        Ok(Self { pages, accessible: true })
    }

    /// Reserves addresses without memory. Any access faults.
    ///
    /// # Errors
    /// The system's.
    pub fn reserved(len: usize) -> io::Result<Self> {
        Ok(Self { pages: pages::Pages::reserved(len.max(LEAST))?, accessible: false })
    }

    /// Its lowest address.
    pub fn base(&self) -> *mut c_void {
        self.pages.base().as_ptr().cast()
    }

    pub fn size(&self) -> ByteSize {
        ByteSize(self.pages.size() as u64)
    }

    /// Its bytes; empty for [reserved](Pages::reserved) addresses.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = if self.accessible { self.pages.size() } else { 0 };
        // SAFETY: mapped readable and writable for `len` bytes, and borrowed mutably for as long as
        // the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.pages.base().as_ptr(), len) }
    }
}
