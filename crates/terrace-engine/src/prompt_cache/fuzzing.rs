//! Files of kept conversations, as the fuzzer makes them.

use super::file::{Opened, sealed, write_file};
use std::path::Path;

/// Reads a conversation from a file of these bytes, and from one whose head (up to the first line
/// break) and rest are these bytes, with lengths and sums that are right.
///
/// # Panics
/// What was read cannot be written, or not be read again.
pub fn kept_conversation(path: &Path, bytes: &[u8]) {
    read(path, bytes);
    if let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
        read(path, &sealed(&bytes[..end], &bytes[end + 1..]));
    }
}

fn read(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file in a directory of the fuzzer");
    let opened = match Opened::read(path) {
        Ok(opened) => opened,
        Err(reason) => return assert_eq!(reason.lines().count(), 1),
    };
    let key = opened.key.clone();
    let Ok(kept) = opened.rest() else { return };
    let mut again = Vec::new();
    write_file(&mut again, &key, &kept).expect("it can be written");
    std::fs::write(path, &again).expect("a file in a directory of the fuzzer");
    let again = Opened::read(path).and_then(Opened::rest).expect("what was written can be read");
    assert_eq!(again, kept);
}
