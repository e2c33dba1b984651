//! Anonymous memory in whole pages.

use crate::sys;
use std::io;
use std::ptr::NonNull;

/// Zero bytes that take RAM only when they are first written, where the system can do that.
#[derive(Debug)]
pub struct Pages(sys::pages::Pages);

impl Pages {
    /// Maps `len` bytes (more than 0), page-aligned.
    ///
    /// # Errors
    /// The system's if there is no memory.
    pub fn new(len: usize) -> io::Result<Self> {
        sys::pages::Pages::new(len).map(Self)
    }

    /// Reserves addresses without memory: any access faults.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::Unsupported`] if it has no such addresses.
    pub fn reserved(len: usize) -> io::Result<Self> {
        sys::pages::Pages::reserved(len).map(Self)
    }

    /// Asks for large pages, which make walks of page tables rare. Only a hint.
    ///
    /// # Errors
    /// The system's if it has none.
    pub fn ask_for_large(&self) -> io::Result<()> {
        self.0.ask_for_large()
    }

    /// Returns the lowest address.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// Returns the RAM of `len` bytes from `offset` on, which must be whole pages, to the system. They are
    /// zero afterwards.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Safety
    /// No address in the range is in use.
    ///
    /// # Panics
    /// If the range does not lie in the mapping.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.size()), "{offset}+{len} of {} bytes", self.size());
        // SAFETY: within the mapping (asserted), and by the contract of this function not in use.
        unsafe { self.0.discard(offset, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_at_first_and_after_they_were_discarded() {
        let pages = Pages::new(3 * 4096).unwrap();
        let _ = pages.ask_for_large();
        assert_eq!((pages.base().as_ptr() as usize % 4096, pages.size()), (0, 3 * 4096));
        let byte = |at: usize| {
            // SAFETY: within the mapping.
            unsafe { pages.base().as_ptr().add(at) }
        };
        for at in [0, 4096, 8191, 8192] {
            // SAFETY: one byte within the mapping, which nothing else uses.
            unsafe {
                assert_eq!(*byte(at), 0);
                *byte(at) = 7;
            }
        }
        // SAFETY: nothing uses the page in the middle.
        unsafe { pages.discard(4096, 4096).unwrap() };
        // SAFETY: as above.
        assert_eq!([0, 4096, 8191, 8192].map(|at| unsafe { *byte(at) }), [7, 0, 0, 7]);
    }

    #[test]
    #[should_panic(expected = "4096+4097 of 8192 bytes")]
    fn only_what_is_mapped_is_discarded() {
        let pages = Pages::new(8192).unwrap();
        // SAFETY: nothing uses these pages.
        let _ = unsafe { pages.discard(4096, 4097) };
    }
}
