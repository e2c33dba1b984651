//! Memory limits of the job that this process is in. There are no control groups with counters of their own.

use super::job;
use std::convert::Infallible;

/// A control group, of which there are none.
#[derive(Clone, Debug)]
pub struct Group(pub(super) Infallible);

/// Memory counters of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMemory(Infallible);

impl GroupMemory {
    pub fn room(&self) -> u64 {
        match self.0 {}
    }

    pub fn headroom(&self) -> u64 {
        match self.0 {}
    }
}

impl Group {
    /// None.
    pub fn all() -> Vec<Self> {
        Vec::new()
    }

    pub fn memory(&self) -> Option<GroupMemory> {
        match self.0 {}
    }
}

/// Returns the bytes that this process may still take in its job; `None` without a limit.
pub fn tightest_room() -> Option<u64> {
    job::limits().into_iter().map(|(limit, used)| limit.saturating_sub(used)).min()
}

/// Returns the lowest memory limit of this process's job, in bytes; `None` without one.
pub fn lowest_limit() -> Option<u64> {
    job::limits().into_iter().map(|(limit, _)| limit).min()
}
