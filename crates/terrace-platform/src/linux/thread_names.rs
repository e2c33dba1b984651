//! The system's names of threads, which a thread inherits from the one that starts it: the way to know
//! threads of ggml.

use std::ffi::{CStr, CString};

/// Room for a name, with its zero (`TASK_COMM_LEN`).
const ROOM: usize = 16;

/// While it lives, this thread has another name.
pub struct Named(CString);

/// Names this thread until the result is dropped. Longer names than 15 bytes are cut.
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
    // SAFETY: the call writes at most as many bytes as there is room, with a zero at the end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    CStr::from_bytes_until_nul(&name).map_or_else(|_| String::new(), |name| name.to_string_lossy().into())
}

fn set(name: &CStr) {
    // SAFETY: a C string, of which the call copies what fits.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_the_name_of_the_one_that_started_them() {
        let before = this();
        let named = name_this("a name of 17 byte");
        assert_eq!(this(), "a name of 17 by");
        assert_eq!(std::thread::spawn(this).join().unwrap(), this());
        drop(named);
        assert_eq!(this(), before);
    }
}
