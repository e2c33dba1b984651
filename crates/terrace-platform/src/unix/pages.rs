use rustix::mm;
use std::io;
use std::ptr::NonNull;

#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is process memory that does not depend on the thread that made it; the type
// only returns addresses.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub fn new(len: usize) -> io::Result<Self> {
        Self::map(len, mm::ProtFlags::READ | mm::ProtFlags::WRITE)
    }

    pub fn reserved(len: usize) -> io::Result<Self> {
        Self::map(len, mm::ProtFlags::empty())
    }

    fn map(len: usize, protection: mm::ProtFlags) -> io::Result<Self> {
        // Miri knows neither this flag nor advice, which only change what the memory costs.
        let flags = if cfg!(miri) { mm::MapFlags::empty() } else { mm::MapFlags::NORESERVE };
        let flags = mm::MapFlags::PRIVATE | flags;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no other
        // memory.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags)? };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, len })
    }

    pub fn ask_for_large(&self) -> io::Result<()> {
        if cfg!(miri) {
            return Ok(());
        }
        // SAFETY: the range is the mapping; the advice changes its backing, not its contents.
        unsafe { super::memory::ask_for_large(self.base.as_ptr().cast(), self.len) }
    }

    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub fn size(&self) -> usize {
        self.len
    }

    /// # Safety
    /// The range lies in the mapping, and no address in it is in use.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        // SAFETY: within the mapping, by the contract.
        let address = unsafe { self.base.as_ptr().add(offset) };
        if cfg!(miri) {
            // SAFETY: as above, and free.
            unsafe { address.write_bytes(0, len) };
            return Ok(());
        }
        // Processors of ARM have pages of 4, 16 or 64 KiB; ranges are whole ones of 4 KiB. What shares a page is zeroed.
        let page = super::memory::page_size();
        let (first, end) = (offset.next_multiple_of(page), (offset + len) / page * page);
        if first >= end {
            // SAFETY: as above.
            unsafe { address.write_bytes(0, len) };
            return Ok(());
        }
        // SAFETY: as above: parts of the range.
        unsafe {
            address.write_bytes(0, first - offset);
            let base = self.base.as_ptr();
            base.add(end).write_bytes(0, offset + len - end);
            super::memory::give_back(base.add(first).cast(), end - first)
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map` with this length, and whoever has an address of it keeps
        // this value.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}
