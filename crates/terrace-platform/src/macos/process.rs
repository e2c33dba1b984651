//! Processes: this one and its limits, its children, and what they hand to each other.

pub use super::processes::{
    OUT_OF_TIME, at_exit, become_program, block_signals, end_at_once, ended_by_signal, grant_time,
    in_own_group, open_files_limit, raise_open_files_limit, send, set_variable, spawn_listening,
    take_listener, take_stdout,
};

use super::memory;
use rustix::event::kqueue::{Event, EventFilter, EventFlags, ProcessEvents, kevent, kqueue};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, kill_process};
use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Returns the path that the running program was started from.
pub fn running_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| std::env::args_os().next().unwrap_or_default().into())
}

/// Tells when a process ends.
struct End {
    queue: OwnedFd,
    /// True once it has been told, which the system does only once.
    told: AtomicBool,
}

impl End {
    /// Watches a process from now on; `None` if there is none of that number.
    fn of(process: Pid) -> io::Result<Option<Self>> {
        let queue = kqueue()?;
        let filter = EventFilter::Proc { pid: process, flags: ProcessEvents::EXIT };
        let watched = [Event::new(filter, EventFlags::ADD, std::ptr::null_mut())];
        // SAFETY: the change names no file.
        match unsafe { kevent(&queue, &watched, &mut [] as &mut [Event; 0], None) } {
            Ok(_) => Ok(Some(Self { queue, told: false.into() })),
            Err(Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process ends, at most for some time; `None` waits without end. Returns true if it has ended.
    fn wait(&self, most: Option<Duration>) -> bool {
        let mut events = Vec::with_capacity(1);
        while !self.told.load(Ordering::Acquire) {
            // SAFETY: there are no changes.
            match unsafe { kevent(&self.queue, &[], rustix::buffer::spare_capacity(&mut events), most) } {
                Err(Errno::INTR) => {}
                Ok(1..) => self.told.store(true, Ordering::Release),
                _ => return false,
            }
        }
        true
    }
}

/// Ends this process when its parent does.
///
/// # Errors
/// The system's.
pub fn end_with_parent() -> io::Result<()> {
    let parent = match getppid() {
        Some(parent) if parent != Pid::INIT => End::of(parent)?,
        _ => None,
    };
    let watch = move || {
        if let Some(parent) = parent {
            parent.wait(None);
        }
        end_at_once(1)
    };
    std::thread::Builder::new().name("terrace-parent".into()).spawn(watch).map(drop)
}

/// Asks a child to end.
pub struct Terminator {
    process: Pid,
    /// `None` if it had ended.
    end: Option<End>,
}

impl Terminator {
    /// To be called before anything waits for the child.
    ///
    /// # Errors
    /// The system's.
    pub fn of(child: &Child) -> io::Result<Self> {
        let process = Pid::from_child(child);
        Ok(Self { process, end: End::of(process)? })
    }

    /// Asks it to end, unless it has ended.
    pub fn terminate(&self) {
        // Between the two calls another process would have to get its number.
        if self.end.as_ref().is_some_and(|end| !end.wait(Some(Duration::ZERO))) {
            let _ = kill_process(self.process, Signal::TERM);
        }
    }
}

/// Time between two looks at the memory of a process that is limited.
const FOOTPRINT_INTERVAL: Duration = Duration::from_millis(10);

/// Bounds the memory of this process for good: a thread ends it when it has `more` bytes than now. The system has
/// limits of addresses and does not keep them.
///
/// # Errors
/// The system's.
pub fn limit_memory(more: u64) -> io::Result<()> {
    let most = memory::footprint().ok_or(io::ErrorKind::Unsupported)? + more;
    let watch = move || {
        while memory::footprint().is_none_or(|used| used <= most) {
            std::thread::sleep(FOOTPRINT_INTERVAL);
        }
        std::process::abort()
    };
    std::thread::Builder::new().name("terrace-memory".into()).spawn(watch).map(drop)
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
        let process = c_int::try_from(process).ok()?;
        let size = c_int::try_from(size_of::<libc::proc_taskallinfo>()).ok()?;
        // SAFETY: zeros are a value of this plain structure, which has the size that is stated.
        let info = unsafe {
            let mut info: libc::proc_taskallinfo = std::mem::zeroed();
            let to = (&raw mut info).cast();
            if libc::proc_pidinfo(process, libc::PROC_PIDTASKALLINFO, 0, to, size) != size {
                return None;
            }
            info
        };
        let ticks = info.ptinfo.pti_total_user + info.ptinfo.pti_total_system;
        Some(Self { stopped: info.pbsd.pbi_status == libc::SSTOP, ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_seen_asked_to_end_and_seen_to_end() {
        let mut child = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
        assert!(Observed::of(child.id()).is_some_and(|seen| !seen.stopped));
        let terminator = Terminator::of(&child).unwrap();
        terminator.terminate();
        assert_eq!(ended_by_signal(child.wait().unwrap()), Some(Signal::TERM.as_raw()));
        for _ in 0..2 {
            terminator.terminate();
            assert!(terminator.end.as_ref().is_some_and(|end| end.told.load(Ordering::Acquire)));
        }
        assert!(Terminator::of(&child).unwrap().end.is_none());
    }
}
