//! The system's names of threads.

use super::thread_calls::{ROOM, get, set};
use std::ffi::{CStr, CString};

/// While it lives, this thread has another name.
pub struct Named(CString);

/// Names this thread until the result is dropped. A longer name than the system has room for is cut, or not set.
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
    get(&mut name);
    CStr::from_bytes_until_nul(&name).map_or_else(|_| String::new(), |name| name.to_string_lossy().into())
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
