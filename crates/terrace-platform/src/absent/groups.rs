//! Control groups with counters of their own, of which there are none.

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
