//! Names of threads, which a thread inherits from the one that starts it: the way to know threads of ggml. Longer ones than
//! 15 bytes are cut.

use std::ffi::CStr;

/// Room for a name, with its zero (`TASK_COMM_LEN`).
pub const ROOM: usize = 16;

/// Writes the name of this thread, with a zero at its end.
pub fn get(name: &mut [u8; ROOM]) {
    // SAFETY: the call writes at most as many bytes as there is room.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
}

/// Names this thread.
pub fn set(name: &CStr) {
    // SAFETY: a C string, of which the call copies what fits.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use crate::thread_names::{name_this, this};

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
