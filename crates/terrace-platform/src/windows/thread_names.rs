//! The system's names of threads. No thread inherits one from the thread that starts it: threads of ggml have none.

use super::call::wide;
use std::ffi::{OsStr, OsString};
use std::os::windows::ffi::OsStringExt;
use windows_sys::Win32::Foundation::LocalFree;
use windows_sys::Win32::System::Threading::{GetCurrentThread, GetThreadDescription, SetThreadDescription};

/// While it lives, this thread has another name.
pub struct Named(String);

/// Names this thread until the result is dropped.
pub fn name_this(name: &str) -> Named {
    let before = this();
    set(name);
    Named(before)
}

impl Drop for Named {
    fn drop(&mut self) {
        set(&self.0);
    }
}

/// The name of this thread; empty where the system does not tell.
pub fn this() -> String {
    let mut name = std::ptr::null_mut();
    // SAFETY: this thread, and a place for the address of a text that ends with zero, which is copied and freed.
    unsafe {
        if GetThreadDescription(GetCurrentThread(), &raw mut name) < 0 || name.is_null() {
            return String::new();
        }
        let len = (0..).take_while(|&at| *name.add(at) != 0).count();
        let text = OsString::from_wide(std::slice::from_raw_parts(name, len));
        LocalFree(name.cast());
        text.to_string_lossy().into_owned()
    }
}

fn set(name: &str) {
    let name = wide(OsStr::new(name));
    // SAFETY: this thread, and a text that ends with zero, which is copied.
    unsafe { SetThreadDescription(GetCurrentThread(), name.as_ptr()) };
}
