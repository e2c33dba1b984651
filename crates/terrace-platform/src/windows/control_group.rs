//! Memory limits of the job that this process is in. There are no control groups with counters of their own.

pub use super::groups::{Group, GroupMemory};

use super::job;

/// Returns the bytes that this process may still take in its job; `None` without a limit.
pub fn tightest_room() -> Option<u64> {
    job::limits().into_iter().map(|(limit, used)| limit.saturating_sub(used)).min()
}

/// Returns the lowest memory limit of this process's job, in bytes; `None` without one.
pub fn lowest_limit() -> Option<u64> {
    job::limits().into_iter().map(|(limit, _)| limit).min()
}
