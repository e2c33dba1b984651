//! Work memory that keeps its address for a run and grows between runs only.

use std::ffi::c_void;

/// What the kernels' wide loads like.
const ALIGN: usize = 64;

/// A growable, aligned buffer.
#[derive(Debug)]
pub struct Scratch {
    bytes: Vec<u8>,
    /// The aligned start within `bytes`; threads of a run write through it, each its own part.
    start: *mut u8,
}

// SAFETY: the pointer is into the vector that moves along with it.
unsafe impl Send for Scratch {}
// SAFETY: shared access only copies the pointer; what is written where is up to its users' unsafe code.
unsafe impl Sync for Scratch {}

impl Default for Scratch {
    fn default() -> Self {
        Self { bytes: Vec::new(), start: std::ptr::dangling_mut() }
    }
}

impl Scratch {
    /// Makes room for at least `len` bytes; what was in it is lost. Call between runs, not in one.
    pub fn reserve(&mut self, len: usize) {
        if self.bytes.len() < len + ALIGN {
            self.bytes = vec![0; len + ALIGN];
            let padding = self.bytes.as_ptr().align_offset(ALIGN);
            // In range: ALIGN bytes more than asked for were allocated.
            self.start = self.bytes[padding..].as_mut_ptr();
        }
    }

    /// The first byte, aligned to 64.
    pub fn as_ptr(&self) -> *mut c_void {
        self.start.cast()
    }
}
