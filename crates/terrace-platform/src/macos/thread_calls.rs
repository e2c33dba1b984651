//! Names of threads. No thread inherits one from the thread that starts it: threads of ggml have none. Longer ones than 63
//! bytes are not set.

use std::ffi::CStr;

/// Room for a name, with its zero (`MAXTHREADNAMESIZE`).
pub const ROOM: usize = 64;

/// Writes the name of this thread, with a zero at its end.
pub fn get(name: &mut [u8; ROOM]) {
    // SAFETY: this thread; the call writes at most as many bytes as there is room.
    unsafe { libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), ROOM) };
}

/// Names this thread.
pub fn set(name: &CStr) {
    // SAFETY: a C string, which the call copies.
    unsafe { libc::pthread_setname_np(name.as_ptr()) };
}
