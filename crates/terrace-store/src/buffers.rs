//! Memory that the kernel may write to: the arena's mapping, and the windows of it that requests
//! own.
//!
//! A window ([`IoBuf`]) keeps its mapping alive, and the in-flight table keeps the window until the
//! engine has reported the request, so nothing is unmapped during a read. The slot table ensures
//! that no two windows overlap.

use crate::ranges::Place;
use std::fs::File;
use std::io;
use std::sync::Arc;
use terrace_platform::file::Positioned;
use terrace_platform::pages::Pages;

/// An anonymous mapping. Pages take RAM when they are first written.
#[derive(Debug)]
pub(crate) struct Mapping(Pages);

impl Mapping {
    /// Maps `len` bytes (more than 0), page-aligned.
    pub fn new(len: usize, large_pages: bool) -> io::Result<Arc<Self>> {
        let pages = Pages::new(len)?;
        if large_pages && let Err(error) = pages.ask_for_large() {
            tracing::debug!(%error, "no large pages for the arena");
        }
        Ok(Arc::new(Self(pages)))
    }

    /// Maps `len` bytes as [`Mapping::new`] does, in large pages if there are some, all of them in RAM.
    pub fn touched(len: usize) -> io::Result<Arc<Self>> {
        /// No system has smaller pages.
        const PAGE: usize = 4096;
        let mapping = Self::new(len, true)?;
        for offset in (0..mapping.size()).step_by(PAGE) {
            // SAFETY: a byte of the mapping, of which nobody else has an address yet: a zero over a zero.
            unsafe { mapping.address(offset).cast_mut().write_volatile(0) };
        }
        Ok(mapping)
    }

    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.0.size() as u64
    }

    /// Returns the address of the byte at `offset`.
    pub fn address(&self, offset: u64) -> *const u8 {
        let offset = usize::try_from(offset).expect("an offset within the mapping fits the address space");
        assert!(offset <= self.0.size(), "byte {offset} of a mapping of {} bytes", self.0.size());
        // SAFETY: `offset` is within (or one past) the mapping, asserted above.
        unsafe { self.0.base().as_ptr().add(offset) }
    }

    /// Copies the bytes at `from` to `to`, a place of the same size that does not overlap it.
    /// Nothing else may read or write either place meanwhile: by the slot table, both belong to the
    /// caller.
    pub fn copy(&self, from: Place, to: Place) {
        assert_eq!(from.len, to.len, "{from:?} to {to:?}");
        assert!(from.end() <= to.offset || to.end() <= from.offset, "{from:?} overlaps {to:?}");
        assert!(from.end().max(to.end()) <= self.size(), "{from:?} to {to:?} of {} bytes", self.size());
        let len = usize::try_from(from.len).expect("a place within the mapping fits the address space");
        // SAFETY: both places are within the mapping and do not overlap (asserted); neither is
        // leased or being read into, so no other thread and no request of the kernel uses them.
        unsafe {
            std::ptr::copy_nonoverlapping(self.address(from.offset), self.address(to.offset).cast_mut(), len);
        }
    }

    /// Returns the RAM of a free place, which must be whole pages, to the system. Its bytes are
    /// then zero.
    pub fn give_back(&self, place: Place) -> io::Result<()> {
        assert!(place.end() <= self.size(), "{place:?} of a mapping of {} bytes", self.size());
        let len = usize::try_from(place.len).expect("a place within the mapping fits the address space");
        let offset = usize::try_from(place.offset).expect("within the mapping");
        // SAFETY: the place is within our mapping (asserted), and free: no address within it is in use.
        unsafe { self.0.discard(offset, len) }
    }

    /// Makes a window on `len` bytes of `place`, from byte `skip` of it on.
    pub fn window(self: &Arc<Self>, place: Place, skip: u64, len: u64) -> IoBuf {
        assert!(skip.checked_add(len).is_some_and(|end| end <= place.len), "{skip}+{len} of {place:?}");
        assert!(place.offset + place.len <= self.size(), "{place:?} of a mapping of {} bytes", self.size());
        let address = self.address(place.offset + skip).cast_mut();
        let len = usize::try_from(len).expect("a window within the mapping fits the address space");
        IoBuf { target: Target { address, len }, _owner: Some(Arc::clone(self)) }
    }
}

/// Memory that one request writes to.
#[derive(Debug)]
pub(crate) struct IoBuf {
    target: Target,
    /// `None` for the caller's memory, which `read_into` borrows until the request has been
    /// reported.
    _owner: Option<Arc<Mapping>>,
}

impl IoBuf {
    /// Makes a window on the caller's memory. `Store::read_into` does not return or unwind before
    /// its requests have been reported.
    pub fn over(target: Target) -> Self {
        Self { target, _owner: None }
    }

    /// Returns the memory to pass to an engine, valid while this window lives.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns `len` bytes of the window, from byte `skip` on. Its request must have been reported,
    /// and its bytes must not have been handed to a consumer yet.
    pub fn arrived(&self, skip: usize, len: usize) -> &[u8] {
        assert!(skip.checked_add(len).is_some_and(|end| end <= self.target.len), "bytes within the window");
        // SAFETY: the range is within this window (asserted), whose memory is initialised and lives
        // as long as `self`; its request has been reported, so neither the kernel nor a thread of an
        // engine writes to it, and the store, which the caller borrows, is the only one that
        // passes it on.
        unsafe { std::slice::from_raw_parts(self.target.address.add(skip), len) }
    }

    /// Copies `dst.len` bytes, from byte `skip` of the window on, into `dst`.
    pub fn copy_to(&self, skip: usize, dst: Target) {
        assert!(skip + dst.len <= self.target.len, "a copy within the window");
        // SAFETY: the source is within this window (asserted) and its request has been reported, so
        // nothing writes to it; the target is `dst.len` bytes of memory that the caller
        // (`read_into`, `copy_resident`) borrows exclusively, so the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(self.target.address.add(skip), dst.address, dst.len);
        }
    }
}

/// An address and a length for the kernel to write to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub address: *mut u8,
    pub len: usize,
}

// SAFETY: an address of memory that may be written from any thread and is used by one request at a
// time.
unsafe impl Send for Target {}

impl Target {
    /// Returns the memory of `dst`.
    pub fn of(dst: &mut [u8]) -> Self {
        Self { address: dst.as_mut_ptr(), len: dst.len() }
    }

    /// Returns what follows the first `done` bytes.
    pub fn skip(self, done: usize) -> Self {
        assert!(done <= self.len, "{done} of {} bytes", self.len);
        // SAFETY: `done` is within the window, asserted above.
        Self { address: unsafe { self.address.add(done) }, len: self.len - done }
    }

    /// Returns the first `len` bytes, or all if there are fewer.
    pub fn first(self, len: usize) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// Inverts a bit of the byte at `at`, for a fault. The request that it belongs to must have ended
    /// and not been reported yet.
    pub fn flip(self, at: usize) {
        assert!(at < self.len, "byte {at} of {}", self.len);
        // SAFETY: the byte is within the window (asserted), which the in-flight table keeps until
        // the request is reported; the request has ended, so nothing else writes to it.
        unsafe { *self.address.add(at) ^= 1 };
    }

    /// Reads once to fill it.
    pub fn fill(self, file: &File, offset: u64) -> io::Result<usize> {
        // SAFETY: the in-flight table keeps the window at this address until the request is
        // reported, which happens after this call, and no other request writes to it; all bytes are
        // initialised, those of the mapping to zero, and the caller's are a slice of its own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address, self.len) };
        file.read_at(bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_where_they_should_be() {
        let mapping = Mapping::new(16384, true).unwrap();
        assert_eq!(mapping.address(0) as usize % 4096, 0);
        let window = mapping.window(Place { offset: 4096, len: 8192 }, 100, 50);
        assert_eq!(window.target().address as usize - mapping.address(0) as usize, 4196);
        let rest = window.target().skip(20);
        assert_eq!((rest.address as usize - window.target().address as usize, rest.len), (20, 30));
        assert_eq!(rest.first(5).len, 5);
    }

    #[test]
    #[should_panic(expected = "of Place")]
    fn windows_end_with_their_place() {
        let mapping = Mapping::new(16384, false).unwrap();
        mapping.window(Place { offset: 0, len: 4096 }, 4000, 97);
    }
}
