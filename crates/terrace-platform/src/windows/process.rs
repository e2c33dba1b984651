//! Processes: this one and its limits, its children, and what they hand to each other.

use super::call::{check, owned, size};
use super::processor::time_of;
use super::signals::Signal;
use super::{handed, job, memory};
use std::ffi::{CString, c_int};
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::windows::io::{
    AsHandle, AsRawHandle, AsRawSocket, FromRawSocket, IntoRawHandle, OwnedHandle, RawHandle,
};
use std::os::windows::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use windows_sys::Win32::Foundation::ERROR_NOT_ENOUGH_QUOTA;
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent, STD_OUTPUT_HANDLE, SetStdHandle,
};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, GetCurrentProcess, INFINITE, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_SYNCHRONIZE, TerminateProcess, WaitForSingleObject,
};

/// Returns the path of the running program. It cannot be replaced while it runs, only renamed.
pub fn running_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| std::env::args_os().next().unwrap_or_default().into())
}

/// Becomes another program, or ends with its status where no process can become another program. Returns only with
/// what was wrong.
pub fn become_program(command: &mut Command) -> io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Ends this process at once. No destructors are run.
pub fn end_at_once(code: i32) -> ! {
    // SAFETY: ends the process, which may be in any state.
    unsafe { TerminateProcess(GetCurrentProcess(), code.cast_unsigned()) };
    std::process::abort()
}

/// The C library's functions for its own numbers of files, and for the end of the process.
mod c {
    use std::ffi::{c_char, c_int};

    unsafe extern "C" {
        pub fn atexit(call: extern "C" fn()) -> c_int;
        pub fn _open_osfhandle(handle: isize, flags: c_int) -> c_int;
        pub fn _dup2(from: c_int, to: c_int) -> c_int;
        pub fn _close(file: c_int) -> c_int;
        pub fn _putenv_s(name: *const c_char, value: *const c_char) -> c_int;
    }
}

/// Calls a function when this process ends by itself.
pub fn at_exit(call: extern "C" fn()) {
    // SAFETY: a function without arguments; the caller's library stays loaded until the process ends.
    unsafe { c::atexit(call) };
}

/// Sets an environment variable of this process, for C code too: the C library has a copy of the system's, which it also
/// keeps up to date.
///
/// # Safety
/// No other thread reads or writes environment variables meanwhile.
///
/// # Panics
/// If the name or the value has a NUL character.
pub unsafe fn set_variable(name: &str, value: &str) {
    let [name, value] = [name, value].map(|text| CString::new(text).expect("no NUL"));
    // SAFETY: two strings that end with NUL; the caller's contract.
    unsafe { c::_putenv_s(name.as_ptr(), value.as_ptr()) };
}

/// Starts a program in a group of its own: Ctrl-C at the terminal does not end it.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP)
}

/// Ends this process when its parent does.
///
/// # Errors
/// The system's.
pub fn end_with_parent() -> io::Result<()> {
    let parent = parent()?;
    // SAFETY: a number; the handle is a new one.
    let parent = unsafe { owned(OpenProcess(PROCESS_SYNCHRONIZE, 0, parent)) }?;
    let watch = move || {
        // SAFETY: an open process.
        unsafe { WaitForSingleObject(parent.as_raw_handle(), INFINITE) };
        end_at_once(1)
    };
    std::thread::Builder::new().name("terrace-parent".into()).spawn(watch).map(drop)
}

/// The number of the process that has started this one.
fn parent() -> io::Result<u32> {
    let mut entry = PROCESSENTRY32W { dwSize: size::<PROCESSENTRY32W>(), ..PROCESSENTRY32W::default() };
    // SAFETY: the handle is a new one.
    let all = unsafe { owned(CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0)) }?;
    // SAFETY: a list of processes, and room of the size that it states.
    let mut found = unsafe { Process32FirstW(all.as_raw_handle(), &raw mut entry) };
    while found != 0 {
        if entry.th32ProcessID == std::process::id() {
            return Ok(entry.th32ParentProcessID);
        }
        // SAFETY: as above.
        found = unsafe { Process32NextW(all.as_raw_handle(), &raw mut entry) };
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Exit code of a program that calls C's `abort`.
const ABORTED: i32 = 3;

/// Returns the number of the exception or limit that has ended a process; `None` if it ended by itself.
pub fn ended_by_signal(status: ExitStatus) -> Option<i32> {
    // Exceptions have numbers from 0xC0000000 on.
    status.code().filter(|&code| matches!(code, ABORTED | OUT_OF_TIME) || code.cast_unsigned() >= 0xC000_0000)
}

/// The number of what ends a process that has computed for as long as [`grant_time`] lets it.
pub const OUT_OF_TIME: i32 = ERROR_NOT_ENOUGH_QUOTA.cast_signed();

/// Asks a child to end.
pub struct Terminator {
    process: OwnedHandle,
    group: u32,
}

impl Terminator {
    /// To be called before anything waits for the child.
    ///
    /// # Errors
    /// The system's.
    pub fn of(child: &Child) -> io::Result<Self> {
        Ok(Self { process: child.as_handle().try_clone_to_owned()?, group: child.id() })
    }

    /// Asks it to end, unless it has ended.
    pub fn terminate(&self) {
        end(self.process.as_raw_handle(), self.group);
    }
}

/// Sends a signal to a child that is in a group of its own, unless it has ended. It gets [`Signal::Terminate`] for
/// [`Signal::Interrupt`], which no process can send to a single other one.
pub fn send(child: &Child, signal: Signal) {
    if matches!(signal, Signal::Interrupt | Signal::Terminate) {
        end(child.as_raw_handle(), child.id());
    }
}

/// Asks a process in a group of its own to end, or ends it if they share no console.
fn end(process: RawHandle, group: u32) {
    // SAFETY: takes numbers; the process has not been let go of, so the number is its own. Ending a process that
    // has ended fails.
    unsafe {
        if GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, group) == 0 {
            TerminateProcess(process, 1);
        }
    }
}

/// Does nothing: threads do not handle signals here.
pub fn block_signals() {}

/// Starts a program that gets a listening socket by [`take_listener`].
///
/// # Errors
/// The system's.
pub fn spawn_listening(command: &mut Command, socket: &TcpListener) -> io::Result<Child> {
    handed::spawn(command, socket.as_raw_socket())
}

/// Returns the listening socket that this process got on its standard input.
///
/// # Errors
/// The system's.
pub fn take_listener() -> io::Result<TcpListener> {
    // SAFETY: a new socket, which is what the parent calls it.
    Ok(unsafe { TcpListener::from_raw_socket(handed::take()?) })
}

/// Returns this process's standard output as a file, and sends what anything else writes there nowhere.
///
/// # Errors
/// The system's.
#[expect(clippy::disallowed_methods, reason = "a device that is the same everywhere")]
pub fn take_stdout() -> io::Result<File> {
    /// C's number of standard output.
    const STDOUT: c_int = 1;
    let stdout = io::stdout().as_handle().try_clone_to_owned()?;
    let nowhere = || File::options().write(true).open("NUL");
    // SAFETY: the files are given away: to the process, whose standard output one stays, and to the C library.
    unsafe {
        check(SetStdHandle(STD_OUTPUT_HANDLE, nowhere()?.into_raw_handle()))?;
        let file = c::_open_osfhandle(nowhere()?.into_raw_handle() as isize, 0);
        if file < 0 || c::_dup2(file, STDOUT) < 0 {
            return Err(io::Error::other("the C library's standard output cannot be replaced"));
        }
        c::_close(file);
    }
    Ok(stdout.into())
}

/// None: there is no limit that a program would meet.
pub fn open_files_limit() -> Option<u64> {
    None
}

/// Does nothing: there is no such limit.
///
/// # Errors
/// None.
pub fn raise_open_files_limit() -> io::Result<()> {
    Ok(())
}

/// Bounds the memory of this process for good: the system may promise it `more` bytes than it has.
///
/// # Errors
/// The system's.
pub fn limit_memory(more: u64) -> io::Result<()> {
    job::limit_memory(memory::committed() + more)
}

/// Lets this process compute for `seconds` more; after them the system ends it with [`OUT_OF_TIME`].
///
/// # Errors
/// The system's.
pub fn grant_time(seconds: u64) -> io::Result<()> {
    job::limit_time(super::processor::time() + Duration::from_secs(seconds))
}

/// A process's status, as the system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// True if somebody has stopped it, which the system does not tell.
    pub stopped: bool,
    /// Time that it has computed, in nanoseconds.
    pub ticks: u64,
}

impl Observed {
    /// Looks at a process by its number; `None` if there is none.
    pub fn of(process: u32) -> Option<Self> {
        // SAFETY: a number; the handle is a new one.
        let process = unsafe { owned(OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, process)) }.ok()?;
        let time = time_of(process.as_raw_handle())?;
        Some(Self { stopped: false, ticks: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) })
    }
}
