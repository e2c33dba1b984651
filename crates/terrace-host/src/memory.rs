//! Memory that this process may use, and has used.

use crate::control_group::tightest_room;
use std::path::Path;
use terrace_model::ByteSize;
use terrace_platform::input_file::{self, MAX_SETTINGS};

/// Returns the RAM that can still be allocated: the kernel's estimate, or less if a control group
/// allows less.
pub fn available_memory() -> ByteSize {
    let free = available_of_machine().unwrap_or(ByteSize(u64::MAX));
    tightest_room().map_or(free, |room| free.min(room))
}

/// Returns the kernel's estimate of the memory that can be allocated without swapping, regardless
/// of control groups.
pub fn available_of_machine() -> Option<ByteSize> {
    meminfo("MemAvailable:")
}

/// Returns the size of the machine's RAM, however much of it this process may use; 0 if unknown.
pub fn total_memory() -> ByteSize {
    meminfo("MemTotal:").unwrap_or_default()
}

/// Returns the peak resident memory of this process; 0 if unknown.
pub fn peak_rss() -> ByteSize {
    proc("/proc/self/status").and_then(|s| field(&s, "VmHWM:")).unwrap_or_default()
}

fn proc(path: &str) -> Option<String> {
    input_file::read_regular_text(Path::new(path), MAX_SETTINGS).ok()
}

fn meminfo(key: &str) -> Option<ByteSize> {
    field(&proc("/proc/meminfo")?, key)
}

/// Finds a line `Key:   123 kB` and returns its value in bytes.
fn field(text: &str, key: &str) -> Option<ByteSize> {
    kib(text.lines().find_map(|l| l.strip_prefix(key))?)
}

/// Parses kibibytes as /proc writes them.
fn kib(text: &str) -> Option<ByteSize> {
    let kib: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ByteSize(kib.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_uses_some() {
        assert!(available_memory() > ByteSize::mib(16));
        assert!(peak_rss() > ByteSize::kib(64));
        assert_eq!(field("a: 1 kB\nVmHWM:\t  12 kB\n", "VmHWM:"), Some(ByteSize(12288)));
    }
}
