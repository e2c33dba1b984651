use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

/// No system that Terrace may run on has smaller pages; larger ones only matter to direct I/O, which
/// there is none of here.
const PAGE: usize = 4096;

#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: memory of the process; the type only returns addresses.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub fn new(len: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len, PAGE).map_err(io::Error::other)?;
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, layout })
    }

    pub fn reserved(_: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn ask_for_large(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// The RAM stays with the process: an allocator cannot give back a part.
    ///
    /// # Safety
    /// The range lies in the memory, and no address in it is in use.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        // SAFETY: by the contract.
        unsafe { self.base.as_ptr().add(offset).write_bytes(0, len) };
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; whoever has an address of it keeps this value.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
