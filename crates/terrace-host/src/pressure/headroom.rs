//! Memory that can still be allocated: on the machine, and within the limits of control groups.

use super::source::{Reading, Source};
use crate::memory::available_of_machine;
use terrace_platform::control_group::Group;

/// The machine's available memory, as the kernel reports it: free memory, and what it can reclaim
/// without swapping.
#[derive(Debug)]
pub struct Machine;

impl Source for Machine {
    fn read(&mut self, _held: u64) -> Reading {
        Reading { headroom: available_of_machine().map(|bytes| bytes.bytes()), pressed: false }
    }
}

/// The memory left within the limits of the groups that this process is in. Limits may change while
/// it runs.
#[derive(Debug)]
pub struct Groups(pub Vec<Group>);

impl Source for Groups {
    fn read(&mut self, _held: u64) -> Reading {
        let rooms = self.0.iter().filter_map(|group| group.memory()).map(|memory| memory.headroom());
        Reading { headroom: rooms.min(), pressed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        assert!(Machine.read(0).headroom.unwrap() > 16 << 20);
        assert_eq!(Groups(Vec::new()).read(0), Reading::default());
    }
}
