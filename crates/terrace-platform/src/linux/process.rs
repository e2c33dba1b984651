//! Processes: this one and its limits, its children, and what they hand to each other.

use super::signals::Signal as Asked;
use crate::input_file::{self, MAX_SETTINGS};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setrlimit,
};
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// Returns a path of the running program, even if its file has been replaced, where the system has one.
pub fn running_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Becomes another program, or ends with its status where no process can become another program. Returns
/// only with what was wrong.
pub fn become_program(command: &mut Command) -> io::Error {
    command.exec()
}

/// Ends this process at once. No destructors are run.
pub fn end_at_once(code: i32) -> ! {
    // SAFETY: ends the process, which may be in any state.
    unsafe { libc::_exit(code) }
}

/// Calls a function when this process ends by itself.
pub fn at_exit(call: extern "C" fn()) {
    // SAFETY: a function without arguments; the caller's library stays loaded until the process ends, or
    // the system takes the function off its list.
    unsafe { libc::atexit(call) };
}

/// Starts a program in a group of its own: Ctrl-C at the terminal does not end it.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Has the system kill this process when its parent ends.
///
/// # Errors
/// The system's.
pub fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Returns the number of the signal, exception or limit that has ended a process; `None` if it ended by itself.
pub fn ended_by_signal(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// The number of what ends a process that has computed for as long as [`grant_time`] lets it.
pub const OUT_OF_TIME: i32 = Signal::XCPU.as_raw();

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

/// Sends a signal to a child that this thread has not waited for yet, unless it has ended.
pub fn send(child: &Child, signal: Asked) {
    // The number is the child's until it has been waited for.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal.number())) {
        let _ = kill_process(pid, signal);
    }
}

/// Keeps this thread, and those that it starts, from handling signals.
pub fn block_signals() {
    // SAFETY: a set that is filled before it is read.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Starts a program that gets a listening socket by [`take_listener`].
///
/// # Errors
/// The system's.
pub fn spawn_listening(command: &mut Command, socket: &TcpListener) -> io::Result<Child> {
    command.stdin(OwnedFd::from(socket.try_clone()?)).spawn()
}

/// Returns the listening socket that this process got on its standard input.
///
/// # Errors
/// The system's.
pub fn take_listener() -> io::Result<TcpListener> {
    Ok(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?.into())
}

/// Returns this process's standard output as a file, and sends what anything else writes there nowhere.
///
/// # Errors
/// The system's.
#[expect(clippy::disallowed_methods, reason = "a device that is the same everywhere")]
pub fn take_stdout() -> io::Result<File> {
    let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(stdout.into())
}

/// Returns how many files this process may have open; `None` without a limit.
pub fn open_files_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises that limit as far as this user may.
///
/// # Errors
/// The system's; then the limit stays.
pub fn raise_open_files_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
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

/// Lets this process compute for `seconds` more; after them the system ends it with [`OUT_OF_TIME`].
///
/// # Errors
/// The system's.
pub fn grant_time(seconds: u64) -> io::Result<()> {
    let used = super::processor::time().as_secs();
    let maximum = getrlimit(Resource::Cpu).maximum;
    // Started seconds count as used.
    let current = [maximum, Some(used + 1 + seconds)].into_iter().flatten().min();
    Ok(setrlimit(Resource::Cpu, Rlimit { current, maximum })?)
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
