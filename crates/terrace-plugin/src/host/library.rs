//! Libraries that are loaded in this process, and their functions.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A library in this process with those that it depends on, or the program itself.
#[derive(PartialEq, Eq)]
pub struct Library(Option<NonNull<c_void>>);

// SAFETY: the linker's number of a library that stays loaded.
unsafe impl Send for Library {}
// SAFETY: as for Send; looking a function up changes nothing.
unsafe impl Sync for Library {}

impl Library {
    /// The library that an address lies in. It stays loaded from now on: this is a plug-in of it.
    pub fn of(address: *const c_void) -> Self {
        let mut info = libc::Dl_info {
            dli_fname: std::ptr::null(),
            dli_fbase: std::ptr::null_mut(),
            dli_sname: std::ptr::null(),
            dli_saddr: std::ptr::null_mut(),
        };
        // SAFETY: any address may be asked for; a place for the result.
        let found = unsafe { libc::dladdr(address, &raw mut info) } != 0 && !info.dli_fname.is_null();
        if !found {
            return Self(None);
        }
        // SAFETY: the linker's name of a library that is loaded: it is not loaded again, and nothing of
        // it is run. The program itself has no such name.
        Self(NonNull::new(unsafe { libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) }))
    }

    /// The address of a function of the library or of one that it depends on; of the program's or of
    /// what it was linked with, if this is the program.
    pub fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let handle = self.0.map_or(libc::RTLD_DEFAULT, NonNull::as_ptr);
        // SAFETY: a library that stays loaded, or the default order of look-up; a C string.
        NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
    }
}
