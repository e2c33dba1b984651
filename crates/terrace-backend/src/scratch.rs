//! Scratch memory that keeps its address during a run and grows only between runs.

use std::ffi::c_void;

/// Alignment in bytes, which suits the kernels' wide loads.
const ALIGN: usize = 64;

/// A growable, aligned buffer.
#[derive(Debug)]
pub struct Scratch {
    bytes: Vec<u8>,
    /// The aligned start within `bytes`. Threads of a run write through it, each to its own part.
    start: *mut u8,
}

// SAFETY: the pointer is into the vector that moves along with it.
unsafe impl Send for Scratch {}
// SAFETY: shared access only copies the pointer; what is written where is up to its users' unsafe
// code.
unsafe impl Sync for Scratch {}

impl Default for Scratch {
    fn default() -> Self {
        Self { bytes: Vec::new(), start: std::ptr::dangling_mut() }
    }
}

impl Scratch {
    /// Makes room for at least `len` bytes, discarding the contents. Call only between runs.
    pub fn reserve(&mut self, len: usize) {
        if self.bytes.len() < len + ALIGN {
            self.bytes = vec![0; len + ALIGN];
            let padding = self.bytes.as_ptr().align_offset(ALIGN);
            // In range, because ALIGN more bytes than needed were allocated.
            self.start = self.bytes[padding..].as_mut_ptr();
        }
    }

    /// The first byte, aligned to 64.
    pub fn as_ptr(&self) -> *mut c_void {
        self.start.cast()
    }
}
