//! Memory limits of the control groups that this process is in, of which there are none.

pub use super::groups::{Group, GroupMemory};

/// `None`: nothing limits the memory of a process.
pub fn tightest_room() -> Option<u64> {
    None
}

/// `None`, as for [`tightest_room`].
pub fn lowest_limit() -> Option<u64> {
    None
}
