//! Counters of how often a control group reached its limits.

use super::control_group::Group;
use super::wait::Waker;
use crate::file::Positioned;
use crate::input_file;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// The counters `high`, `max` and `oom` of `memory.events` (v2), or the one of `memory.failcnt`
/// (v1).
#[derive(Debug)]
pub struct Events {
    file: File,
    last: u64,
}

impl Events {
    /// Opens those of a group; `None` if it has none.
    pub fn of(group: &Group) -> Option<Self> {
        Self::open(&group.events())
    }

    /// Returns whether the group has reached a limit since the last call.
    pub fn is_pressed(&mut self) -> bool {
        let now = self.count();
        std::mem::replace(&mut self.last, now) < now
    }

    /// Returns what reports when the group reaches a limit, on systems that can be asked.
    pub fn waker(&self) -> Waker<'_> {
        Waker(self.file.as_fd())
    }

    fn open(path: &Path) -> Option<Self> {
        let mut this = Self { file: input_file::open(path).ok()?.0, last: 0 };
        this.last = this.count();
        Some(this)
    }

    fn count(&mut self) -> u64 {
        let mut buffer = [0; 512];
        let Ok(len) = self.file.read_at(&mut buffer, 0) else { return self.last };
        sum(&String::from_utf8_lossy(&buffer[..len]))
    }
}

/// Sums the counters that mean a shortage of memory.
fn sum(text: &str) -> u64 {
    if let Ok(count) = text.trim().parse() {
        return count;
    }
    let fields = text.lines().filter_map(|line| line.split_once(' '));
    let short = fields.filter(|(name, _)| matches!(*name, "high" | "max" | "oom"));
    short.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_grow_are_pressure() {
        assert_eq!(sum("low 7\nhigh 1\nmax 20\noom 300\noom_kill 5\n"), 321);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.failcnt");
        assert!(Events::open(&path).is_none());
        std::fs::write(&path, "5\n").unwrap();
        let mut events = Events::open(&path).unwrap();
        assert!(!events.is_pressed(), "that was before");
        std::fs::write(&path, "6\n").unwrap();
        assert!(events.is_pressed());
        assert!(!events.is_pressed());
    }
}
