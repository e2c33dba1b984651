//! Memory that the kernel may write to: the arena's mapping, and the windows of it that requests
//! own.
//!
//! A window ([`IoBuf`]) keeps its mapping alive, and the in-flight table keeps the window until the
//! engine has reported the request, so nothing is unmapped during a read. The slot table ensures
//! that no two windows overlap.

use crate::ranges::Place;
use rustix::mm;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// An anonymous mapping. Pages take RAM when they are first written.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is process memory that does not depend on the thread that made it; the type
// only returns addresses.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references only allow taking addresses and making windows.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes (more than 0), page-aligned.
    pub fn new(len: usize, huge_pages: bool) -> io::Result<Arc<Self>> {
        let prot = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        // Miri knows neither this flag nor advice, which only change what the memory costs.
        let flags = if cfg!(miri) { mm::MapFlags::empty() } else { mm::MapFlags::NORESERVE };
        let flags = mm::MapFlags::PRIVATE | flags;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no other
        // memory.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
        if huge_pages && !cfg!(miri) {
            // SAFETY: the range is the mapping just made; the advice changes its backing, not its
            // contents.
            let advised = unsafe { mm::madvise(base, len, mm::Advice::LinuxHugepage) };
            if let Err(error) = advised {
                tracing::debug!(%error, "no huge pages for the arena");
            }
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Arc::new(Self { base, len }))
    }

    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.len as u64
    }

    /// Returns the address of the byte at `offset`.
    pub fn address(&self, offset: u64) -> *const u8 {
        let offset = usize::try_from(offset).expect("an offset within the mapping fits the address space");
        assert!(offset <= self.len, "byte {offset} of a mapping of {} bytes", self.len);
        // SAFETY: `offset` is within (or one past) the mapping, asserted above.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Copies the bytes at `from` to `to`, a place of the same size that does not overlap it.
    /// Nothing else may read or write either place meanwhile: by the slot table, both belong to the
    /// caller.
    pub fn copy(&self, from: Place, to: Place) {
        assert_eq!(from.len, to.len, "{from:?} to {to:?}");
        assert!(from.end() <= to.offset || to.end() <= from.offset, "{from:?} overlaps {to:?}");
        assert!(from.end().max(to.end()) <= self.len as u64, "{from:?} to {to:?} of {} bytes", self.len);
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
        assert!(place.end() <= self.len as u64, "{place:?} of a mapping of {} bytes", self.len);
        let len = usize::try_from(place.len).expect("a place within the mapping fits the address space");
        let address = self.address(place.offset).cast_mut();
        if cfg!(miri) {
            // SAFETY: the place is within our mapping (asserted), and free: no address within it is
            // in use.
            unsafe { address.write_bytes(0, len) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { mm::madvise(address.cast(), len, mm::Advice::LinuxDontNeed)? };
        Ok(())
    }

    /// Makes a window on `len` bytes of `place`, from byte `skip` of it on.
    pub fn window(self: &Arc<Self>, place: Place, skip: u64, len: u64) -> IoBuf {
        assert!(skip.checked_add(len).is_some_and(|end| end <= place.len), "{skip}+{len} of {place:?}");
        assert!(place.offset + place.len <= self.len as u64, "{place:?} of a mapping of {} bytes", self.len);
        let address = self.address(place.offset + skip).cast_mut();
        let len = usize::try_from(len).expect("a window within the mapping fits the address space");
        IoBuf { target: Target { address, len }, _owner: Some(Arc::clone(self)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length; windows and slots hold an `Arc`
        // to it, so none exists any more.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
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

    /// Calls `pread` once to fill it.
    pub fn fill(self, file: &File, offset: u64) -> rustix::io::Result<usize> {
        // SAFETY: the in-flight table keeps the window at this address until the request is
        // reported, which happens after this call, and no other request writes to it; all bytes are
        // initialised, those of the mapping to zero, and the caller's are a slice of its own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address, self.len) };
        rustix::io::pread(file, bytes, offset)
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
