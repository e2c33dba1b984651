//! Memory that this process may use, and has used.

use terrace_model::ByteSize;
use terrace_platform::{control_group, memory};

/// Returns the RAM that can still be allocated: the system's estimate, or less if a control group
/// allows less.
pub fn available_memory() -> ByteSize {
    let free = available_of_machine().unwrap_or(ByteSize(u64::MAX));
    control_group::tightest_room().map_or(free, |room| free.min(ByteSize(room)))
}

/// Returns the system's estimate of the memory that can be allocated without swapping, regardless
/// of control groups.
pub fn available_of_machine() -> Option<ByteSize> {
    memory::available().map(ByteSize)
}

/// Returns the size of the machine's RAM, however much of it this process may use; 0 if unknown.
pub fn total_memory() -> ByteSize {
    memory::total().map(ByteSize).unwrap_or_default()
}

/// Returns the peak resident memory of this process; 0 if unknown.
pub fn peak_rss() -> ByteSize {
    memory::peak_of_process().map(ByteSize).unwrap_or_default()
}

/// Returns the lowest memory limit of the control groups that this process is in; `None` without
/// one.
pub fn cgroup_memory_limit() -> Option<ByteSize> {
    control_group::lowest_limit().map(ByteSize)
}
