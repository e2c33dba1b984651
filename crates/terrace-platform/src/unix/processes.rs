//! What Linux and macOS have in common about processes.

use super::signals::Signal as Asked;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

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

/// Sets an environment variable of this process, for C code too.
///
/// # Safety
/// No other thread reads or writes environment variables meanwhile.
pub unsafe fn set_variable(name: &str, value: &str) {
    // SAFETY: the caller's contract.
    unsafe { std::env::set_var(name, value) };
}

/// Starts a program in a group of its own: Ctrl-C at the terminal does not end it.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Returns the number of the signal, exception or limit that has ended a process; `None` if it ended by itself.
pub fn ended_by_signal(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// The number of what ends a process that has computed for as long as [`grant_time`] lets it.
pub const OUT_OF_TIME: i32 = Signal::XCPU.as_raw();

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
