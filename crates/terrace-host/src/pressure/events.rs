//! Counters of how often a control group reached its limits.

use super::source::{Reading, Source};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use terrace_platform::input_file;

/// The counters `high`, `max` and `oom` of `memory.events` (v2), or the one of `memory.failcnt`
/// (v1).
#[derive(Debug)]
pub struct Events {
    file: File,
    last: u64,
}

impl Events {
    /// Opens the file; `None` if the group has none.
    pub fn open(path: &Path) -> Option<Self> {
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

impl Source for Events {
    fn read(&mut self, _held: u64) -> Reading {
        let now = self.count();
        let pressed = now > self.last;
        self.last = now;
        Reading { headroom: None, pressed }
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
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
        assert!(!events.read(0).pressed, "that was before");
        std::fs::write(&path, "6\n").unwrap();
        assert!(events.read(0).pressed);
        assert!(!events.read(0).pressed);
    }
}
