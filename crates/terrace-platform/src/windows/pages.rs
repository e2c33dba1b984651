use super::call::check;
use std::io;
use std::ptr::NonNull;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, PAGE_READWRITE, VirtualAlloc,
    VirtualFree,
};

#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process that does not depend on the thread that asked for it; the type only returns
// addresses.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// The system promises the memory now, in RAM or its paging file, and takes RAM for a page when it is first
    /// written.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::map(len, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE)
    }

    pub fn reserved(len: usize) -> io::Result<Self> {
        Self::map(len, MEM_RESERVE, PAGE_NOACCESS)
    }

    fn map(len: usize, kind: u32, protection: u32) -> io::Result<Self> {
        // SAFETY: new addresses, which the system chooses.
        let base = unsafe { VirtualAlloc(std::ptr::null(), len, kind, protection) };
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// Large pages are taken from RAM at once and for good, which is not what [`Pages`] are.
    pub fn ask_for_large(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
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
    /// The range lies in the memory, and no address in it is in use.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        if len == 0 {
            // The system would take this for everything.
            return Ok(());
        }
        // SAFETY: within the memory and not in use, by the contract. Pages that are committed again are zero.
        unsafe {
            let address = self.base.as_ptr().add(offset).cast();
            check(VirtualFree(address, len, MEM_DECOMMIT))?;
            if VirtualAlloc(address, len, MEM_COMMIT, PAGE_READWRITE).is_null() {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: taken in `map`; whoever has an address of it keeps this value.
        let freed = check(unsafe { VirtualFree(self.base.as_ptr().cast(), 0, MEM_RELEASE) });
        debug_assert!(freed.is_ok(), "VirtualFree: {freed:?}");
    }
}
