use crate::input_file;
use std::path::Path;

/// Longest name, in bytes: the kernel's own limit is 64.
const MAX_NAME: u64 = 256;

pub fn name() -> Option<String> {
    let text = input_file::read_regular_text(Path::new("/proc/sys/kernel/hostname"), MAX_NAME).ok()?;
    Some(text.trim().to_owned())
}
