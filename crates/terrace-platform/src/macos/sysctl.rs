//! Facts that the kernel has by name (sysctl(3)).

use std::ffi::CStr;

/// Longest text, in bytes.
const MAX_TEXT: usize = 256;

/// Returns a number of 32 or 64 bits; `None` if the kernel has none of that name.
pub fn number(name: &CStr) -> Option<u64> {
    let mut bytes = [0; 8];
    // A number of 32 bits fills the lower half: processors of Macs store low bytes first.
    (fill(name, &mut bytes)? > 0).then(|| u64::from_le_bytes(bytes))
}

/// Returns a text; `None` if the kernel has none of that name.
pub fn text(name: &CStr) -> Option<String> {
    let mut bytes = [0; MAX_TEXT];
    let len = fill(name, &mut bytes)?;
    let text = CStr::from_bytes_until_nul(&bytes[..len]).ok()?;
    Some(text.to_string_lossy().into_owned())
}

/// Writes what the kernel has, and returns its length in bytes.
fn fill(name: &CStr, to: &mut [u8]) -> Option<usize> {
    let mut len = to.len();
    // SAFETY: a C string, room for `len` bytes, and nothing that would be set.
    let failed = unsafe {
        libc::sysctlbyname(name.as_ptr(), to.as_mut_ptr().cast(), &raw mut len, std::ptr::null_mut(), 0)
    };
    (failed == 0).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_read() {
        assert!(number(c"hw.memsize").unwrap() > 1 << 30);
        assert_eq!(text(c"kern.ostype").unwrap(), "Darwin");
        assert_eq!((number(c"terrace.none"), text(c"terrace.none")), (None, None));
    }
}
