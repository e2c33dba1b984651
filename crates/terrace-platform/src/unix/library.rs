//! Libraries in this process, and their functions.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// A library in this process, for the life of the process.
///
/// Libraries of ggml cannot be unloaded: their constructors install a handler of uncaught exceptions.
/// After that one is gone, an exception jumps into nothing, and a library that is loaded to the same
/// address finds its own handler installed and aborts.
pub struct Object(NonNull<c_void>);

impl Object {
    /// Loads a library with all that it depends on. Its symbols are not visible to others.
    ///
    /// # Errors
    /// The linker's reason.
    pub fn open(path: &Path) -> Result<Self, String> {
        // A name without a slash would be looked for in the system's folders.
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a C string. The library's constructors run: the caller asked for its code.
        let handle = unsafe { libc::dlopen(name.as_ptr(), KEPT) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: after a failure it is a C string, until the next call on this thread.
            let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
            reason.to_string_lossy().into_owned()
        })
    }

    /// The address of a symbol of the library, or of one that it depends on; `None` means that none
    /// of them has it. The program's own symbols are not looked at.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: a loaded library and a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// Resolved at once, visible to nobody else, never unloaded.
const KEPT: libc::c_int = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;

/// The file of the library, or the program, that this address lies in.
pub fn file_of(address: *const c_void) -> Option<Box<OsStr>> {
    let info = info_of(address)?;
    // SAFETY: a C string of the linker, which lives as long as the library is loaded: it is copied.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes()).into())
}

/// The linker's facts about the library that an address lies in, which has a name.
fn info_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for; a place for the result.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0 && !info.dli_fname.is_null();
    found.then_some(info)
}

/// A library in this process with those that it depends on, or the program itself.
#[derive(PartialEq, Eq)]
pub struct Loaded(Option<NonNull<c_void>>);

// SAFETY: the linker's number of a library that stays loaded.
unsafe impl Send for Loaded {}
// SAFETY: as for Send; looking a function up changes nothing.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// The library that an address lies in. It stays loaded from now on: this is a plug-in of it.
    pub fn of(address: *const c_void) -> Self {
        let Some(info) = info_of(address) else { return Self(None) };
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
