//! Memory of the process that takes the place of pages of a mapping.

use rustix::mm::{self, MapFlags, MremapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// Bytes of a large page. Where they are others, memory begins at a place that suits these, which costs nothing.
const LARGE: usize = 2 << 20;

/// Memory to be written before it takes the place of other pages.
#[derive(Debug)]
pub struct OwnPages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: process memory that does not depend on the thread that mapped it, and that nothing else refers to.
unsafe impl Send for OwnPages {}

impl OwnPages {
    /// Zeros for the `len` bytes at an address, in large pages as far as that range has room for whole ones. Both are multiples
    /// of a page.
    ///
    /// # Errors
    /// The system's; `Unsupported` on systems where pages cannot take the place of others.
    ///
    /// # Panics
    /// If they are no multiples of a page, or there are none.
    pub fn like(address: usize, len: usize) -> io::Result<Self> {
        let page = super::memory::page_size();
        assert!(len > 0 && len.is_multiple_of(page) && address.is_multiple_of(page), "whole pages");
        let room = len.checked_add(LARGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no other memory.
        let start = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), room, protection, flags)? };
        // As far from a large page as the address is: only then does a large page move as one.
        let skipped = address.wrapping_sub(start as usize) % LARGE;
        let base = start.cast::<u8>().wrapping_add(skipped);
        // SAFETY: what lies before and after the `len` bytes in the new mapping, which is whole pages; the advice changes what
        // backs the memory, not its contents.
        unsafe {
            if skipped > 0 {
                mm::munmap(start, skipped)?;
            }
            if skipped < LARGE {
                mm::munmap(base.wrapping_add(len).cast(), LARGE - skipped)?;
            }
            // Without large pages, these are as good as those of any other memory.
            let _ = super::memory::ask_for_large(base.cast(), len);
        }
        let base = NonNull::new(base).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, len })
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: memory of this value, which it lends.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    /// Has these pages take the place of those at an address, for all threads at one time. They can be written to from then on.
    ///
    /// # Errors
    /// The system's: the pages at the address are still there.
    ///
    /// # Safety
    /// The address is that which this was made for. Its pages are a mapping of the process, which ends with what it is part of.
    /// Whoever reads them meanwhile may take either bytes, and nothing has a reference to them.
    pub unsafe fn replace(self, address: usize) -> io::Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        let (from, to) = (this.base.as_ptr().cast(), address as *mut _);
        // SAFETY: the caller's contract: memory of this value moves to pages that may be unmapped.
        let moved = unsafe { mm::mremap_fixed(from, this.len, this.len, MremapFlags::MAYMOVE, to) };
        if let Err(error) = moved {
            drop(std::mem::ManuallyDrop::into_inner(this));
            return Err(error.into());
        }
        Ok(())
    }
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        // SAFETY: mapped in `like` with this length, and not moved.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_map::FileMap;
    use crate::mappings::Maps;
    use std::io::Write;

    #[test]
    fn pages_take_the_place_of_a_files() {
        let page = crate::memory::page_size();
        let bytes: Vec<u8> = (0..3 * LARGE).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let map = FileMap::of(file.as_file(), bytes.len()).unwrap();
        let base = map.base().as_ptr() as usize;
        let all = || {
            // SAFETY: the mapping, which is whole.
            unsafe { std::slice::from_raw_parts(map.base().as_ptr(), bytes.len()).to_vec() }
        };
        for (at, len) in [(0, page), (2 * page, 3 * page), (page, LARGE + 5 * page), (2 * LARGE, LARGE)] {
            let mut pages = OwnPages::like(base + at, len).unwrap();
            assert!(pages.bytes().iter().all(|&byte| byte == 0));
            pages.bytes().copy_from_slice(&bytes[at..at + len]);
            // SAFETY: pages of the mapping, with their bytes.
            unsafe { pages.replace(base + at).unwrap() };
            assert!(Maps::of_process().find(base + at).is_none() && all() == bytes, "{at}, {len}");
        }
        let place = Maps::of_process().find(base + LARGE + 6 * page).unwrap();
        assert_eq!(place.offset, (LARGE + 6 * page) as u64);
        // They can be written to, and a failure leaves what is there.
        // SAFETY: memory of the process now.
        unsafe { (base as *mut u8).write(7) };
        let pages = OwnPages::like(base, page).unwrap();
        // SAFETY: no address of a process.
        assert!(unsafe { pages.replace(usize::MAX / page * page) }.is_err());
        assert_eq!((all()[0], &all()[1..]), (7, &bytes[1..]));
    }
}
