//! Processes: this one and its limits, its children, and what they hand to each other.

pub use super::processes::{
    OUT_OF_TIME, at_exit, become_program, block_signals, end_at_once, ended_by_signal, grant_time,
    in_own_group, open_files_limit, raise_open_files_limit, send, set_variable, spawn_listening,
    take_listener, take_stdout,
};

use crate::input_file::{self, MAX_SETTINGS};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setrlimit,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;

/// Returns a path of the running program, even if its file has been replaced, where the system has one.
pub fn running_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Has the system kill this process when its parent ends.
///
/// # Errors
/// The system's.
pub fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Asks a child to end.
pub struct Terminator(OwnedFd);

impl Terminator {
    /// To be called before anything waits for the child.
    ///
    /// # Errors
    /// The system's.
    pub fn of(child: &Child) -> io::Result<Self> {
        Ok(Self(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?))
    }

    /// Asks it to end, unless it has ended.
    pub fn terminate(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::TERM);
    }
}

/// Bounds the memory of this process for good: it may take `more` bytes of addresses than it has, and its
/// memory is not written to disk if it crashes.
///
/// # Errors
/// The system's.
pub fn limit_memory(more: u64) -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // The first number is the size of the address space, in pages.
    let sizes = input_file::read_regular_text(Path::new("/proc/self/statm"), MAX_SETTINGS)?;
    let pages: Option<u64> = sizes.split(' ').next().and_then(|pages| pages.parse().ok());
    let now = pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size() as u64;
    // A system's smaller limit stays.
    let maximum = [getrlimit(Resource::As).maximum, Some(now + more)].into_iter().flatten().min();
    Ok(setrlimit(Resource::As, Rlimit { current: maximum, maximum })?)
}

/// A process's status, as the system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// True if somebody has stopped it.
    pub stopped: bool,
    /// Time that it has computed, in the system's ticks.
    pub ticks: u64,
}

impl Observed {
    /// Looks at a process by its number; `None` if there is none.
    pub fn of(process: u32) -> Option<Self> {
        let path = PathBuf::from(format!("/proc/{process}/stat"));
        Self::parse(&input_file::read_regular_text(&path, MAX_SETTINGS).ok()?)
    }

    /// Reads `/proc/PID/stat`, whose second field is a name in brackets.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        // The fields between are ids, flags and faults.
        let mut times = fields.skip(10).map(|field| field.parse::<u64>().ok());
        Some(Self { stopped: matches!(state, 'T' | 't'), ticks: times.next()?? + times.next()?? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read_behind_the_name() {
        let line = "7 (a) b (c) T 1 7 7 0 -1 4194304 90 0 0 0 12 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(Observed::parse(line), Some(Observed { stopped: true, ticks: 42 }));
        assert_eq!(Observed::parse("7 (x) R 1"), None);
        assert!(Observed::of(std::process::id()).is_some_and(|seen| !seen.stopped));
    }
}
