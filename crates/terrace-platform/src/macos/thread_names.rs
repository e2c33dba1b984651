//! The system's names of threads. No thread inherits one from the thread that starts it: threads of ggml have none.

use std::ffi::{CStr, CString};

/// Room for a name, with its zero (`MAXTHREADNAMESIZE`).
const ROOM: usize = 64;

/// While it lives, this thread has another name.
pub struct Named(CString);

/// Names this thread until the result is dropped. Longer names than 63 bytes are not set.
pub fn name_this(name: &str) -> Named {
    let before = this();
    set(&CString::new(name).unwrap_or_default());
    Named(CString::new(before).unwrap_or_default())
}

impl Drop for Named {
    fn drop(&mut self) {
        set(&self.0);
    }
}

/// The name of this thread; empty where the system does not tell.
pub fn this() -> String {
    let mut name = [0u8; ROOM];
    // SAFETY: this thread; the call writes at most as many bytes as there is room, with a zero at the end.
    unsafe { libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), ROOM) };
    CStr::from_bytes_until_nul(&name).map_or_else(|_| String::new(), |name| name.to_string_lossy().into())
}

fn set(name: &CStr) {
    // SAFETY: a C string, which the call copies.
    unsafe { libc::pthread_setname_np(name.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name_as_long_as_it_is_given() {
        let before = this();
        let named = name_this("a name");
        assert_eq!(this(), "a name");
        drop(named);
        assert_eq!(this(), before);
    }
}
