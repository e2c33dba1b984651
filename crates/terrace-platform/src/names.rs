//! Names of files as bytes: a name need not be UTF-8. The name of the machine.

use std::ffi::{CString, NulError, OsStr};
use std::path::Path;

/// Returns the name that the machine has for itself; `None` if it has none.
pub fn machine() -> Option<String> {
    crate::sys::machine::name().filter(|name| !name.is_empty())
}

/// Returns a name's bytes. Only those of ASCII characters have a meaning here.
pub fn bytes(name: &OsStr) -> &[u8] {
    name.as_encoded_bytes()
}

/// Returns a path as C functions take it, in whatever form they take long ones.
///
/// # Errors
/// If a zero byte is in it.
pub fn c_string(path: &Path) -> Result<CString, NulError> {
    CString::new(crate::sys::file::for_c(path).as_os_str().as_encoded_bytes())
}

/// Returns the name without this ending; `None` if it ends in another way.
pub fn strip_suffix<'a>(name: &'a OsStr, ending: &str) -> Option<&'a OsStr> {
    let bytes = name.as_encoded_bytes().strip_suffix(ending.as_bytes())?;
    // SAFETY: the encoded bytes of a name, split before valid UTF-8, or not at all.
    Some(unsafe { OsStr::from_encoded_bytes_unchecked(bytes) })
}

/// Splits a name at the last `separator`, an ASCII character; `None` if it has none.
///
/// # Panics
/// If the separator is not ASCII.
pub fn rsplit_once(name: &OsStr, separator: u8) -> Option<(&OsStr, &OsStr)> {
    assert!(separator.is_ascii(), "names are split at characters");
    let bytes = name.as_encoded_bytes();
    let at = bytes.iter().rposition(|&byte| byte == separator)?;
    // SAFETY: the encoded bytes of a name, split before and after an ASCII character.
    Some(unsafe {
        (
            OsStr::from_encoded_bytes_unchecked(&bytes[..at]),
            OsStr::from_encoded_bytes_unchecked(&bytes[at + 1..]),
        )
    })
}

/// Splits a name at each `separator`, an ASCII character.
///
/// # Panics
/// If the separator is not ASCII.
pub fn split(name: &OsStr, separator: u8) -> Vec<&OsStr> {
    assert!(separator.is_ascii(), "names are split at characters");
    let pieces = name.as_encoded_bytes().split(|&byte| byte == separator);
    // SAFETY: the encoded bytes of a name, split before and after ASCII characters.
    pieces.map(|piece| unsafe { OsStr::from_encoded_bytes_unchecked(piece) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_characters() {
        let name = OsStr::new("ä:b,c.gguf");
        assert_eq!(split(name, b','), ["ä:b", "c.gguf"]);
        assert_eq!(split(OsStr::new(""), b','), [""]);
        assert_eq!(rsplit_once(name, b':'), Some((OsStr::new("ä"), OsStr::new("b,c.gguf"))));
        assert_eq!(rsplit_once(name, b';'), None);
        assert_eq!(strip_suffix(name, ".gguf"), Some(OsStr::new("ä:b,c")));
        assert_eq!(strip_suffix(name, ".bin"), None);
        assert_eq!(strip_suffix(name, ""), Some(name));
        assert!(c_string(Path::new("a\0b")).is_err());
    }
}
