//! Libraries in this process, and their functions.

use super::call::{check, text, wide};
use std::ffi::{CStr, OsStr, c_void};
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use windows_sys::Win32::Foundation::HMODULE;
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleFileNameW,
    GetModuleHandleExW, GetProcAddress, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR,
    LoadLibraryExW,
};

/// A library in this process, for the life of the process.
pub struct Object(NonNull<c_void>);

impl Object {
    /// Loads a library with all that it depends on, which is looked for beside it and in the system's folders.
    ///
    /// # Errors
    /// The system's reason.
    pub fn open(path: &Path) -> Result<Self, String> {
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let name = wide(path.as_os_str());
        let from = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
        // SAFETY: a name that ends with zero. The library's code runs: the caller asked for it.
        let module = unsafe { LoadLibraryExW(name.as_ptr(), std::ptr::null_mut(), from) };
        NonNull::new(module).map(Self).ok_or_else(|| io::Error::last_os_error().to_string())
    }

    /// The address of a symbol of the library; `None` means that it has none. Those of libraries that it
    /// depends on are not looked at.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        function(self.0.as_ptr(), name)
    }
}

fn function(module: HMODULE, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a loaded library and a C string.
    let found = unsafe { GetProcAddress(module, name.as_ptr().cast()) }?;
    NonNull::new(found as *mut c_void)
}

/// The library, or the program, that an address lies in. It stays loaded from now on.
fn module_of(address: *const c_void) -> Option<NonNull<c_void>> {
    let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
    let mut module = std::ptr::null_mut();
    // SAFETY: any address may be asked for; a place for the result.
    check(unsafe { GetModuleHandleExW(flags, address.cast(), &raw mut module) }).ok()?;
    NonNull::new(module)
}

/// The file of the library, or the program, that this address lies in.
pub fn file_of(address: *const c_void) -> Option<Box<OsStr>> {
    let module = module_of(address)?;
    let name = text(|room| {
        let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
        // SAFETY: a loaded library, and room of that length.
        unsafe { GetModuleFileNameW(module.as_ptr(), room.as_mut_ptr(), len) }
    });
    Some(name.ok()?.into_boxed_os_str())
}

/// A library in this process, or the program itself.
#[derive(PartialEq, Eq)]
pub struct Loaded(Option<NonNull<c_void>>);

// SAFETY: the number of a library that stays loaded.
unsafe impl Send for Loaded {}
// SAFETY: as for Send; looking a function up changes nothing.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// The library that an address lies in. It stays loaded from now on: this is a plug-in of it.
    pub fn of(address: *const c_void) -> Self {
        Self(module_of(address))
    }

    /// The address of a function that the library exports.
    pub fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        function(self.0?.as_ptr(), name)
    }
}
