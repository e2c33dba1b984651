//! The process that applies chat templates: this program, started with [`ARGUMENT`] alone.
//!
//! It gets its requests on stdin, which is one end of a socket, and answers there. A template can
//! make it run out of memory, stack or time, and then it ends, by a signal: there is no point at
//! which a template engine could be stopped from outside, nor a bound on what a single one of its
//! steps takes.

use super::ask::{MEMORY_MIB, Reply};
use super::desk::Desk;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use terrace_platform::{local_socket, process};

/// The argument that makes this program a worker.
pub(super) const ARGUMENT: &str = "chat-template-worker";

/// Time that a worker may compute for a request, in seconds.
pub(super) const SECONDS: u64 = 10;

/// Stack of the thread that renders, in bytes.
const STACK: usize = 16 << 20;

/// True if [`enter`] was called: if not, this program would start itself as itself.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The program that is started in place of this one.
static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Has another program start as the worker from now on: for processes whose program is not Terrace. It begins with
/// [`enter`], and is of the same version.
pub fn use_program(program: PathBuf) {
    *PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
}

/// Makes this program one that can apply chat templates. To be called first in `main`: if the
/// process was started to apply them, it returns the process's exit code after having done so until
/// its parent ended.
pub fn enter() -> Option<ExitCode> {
    ENTERED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    let worker = arguments.next().is_some_and(|first| first == ARGUMENT) && arguments.next().is_none();
    worker.then(|| {
        let work = std::thread::Builder::new().stack_size(STACK).spawn(|| {
            let mut socket = local_socket::of_stdin()?;
            process::limit_memory(MEMORY_MIB << 20)?;
            work(&mut socket, grant_time)
        });
        let ended = work.map(|thread| thread.join());
        if matches!(ended, Ok(Ok(Ok(())))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    })
}

/// The program that can be started as a worker; `None`: there is none.
pub(super) fn program() -> Option<PathBuf> {
    let other = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The running program, even if its file has been replaced.
    other.or_else(|| ENTERED.load(Ordering::Relaxed).then(process::running_program))
}

/// Grants this process time for one more request; after it the system ends the process.
fn grant_time() -> io::Result<()> {
    process::grant_time(SECONDS)
}

/// Answers requests until there are no more. Calls `grant` before each.
pub(super) fn work(socket: &mut (impl Read + Write), grant: fn() -> io::Result<()>) -> io::Result<()> {
    let mut desk = Desk::default();
    while let Some(request) = read_frame(socket, u64::MAX)? {
        grant()?;
        let answer = desk.answer(&serde_json::from_slice(&request)?);
        match answer {
            Ok(text) => {
                write_frame(socket, &Reply::Text(text.len() as u64))?;
                socket.write_all(text.as_bytes())?;
            }
            Err(error) => write_frame(socket, &Reply::Error(error))?,
        }
    }
    Ok(())
}

/// Writes a message as JSON after its length.
pub(super) fn write_frame(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    to.write_all(&(text.len() as u64).to_le_bytes())?;
    to.write_all(&text)
}

/// Reads a message's JSON, of up to `most` bytes. `None` means that there are no more.
pub(super) fn read_frame(from: &mut impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 8];
    match from.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u64::from_le_bytes(len);
    if len > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    let got = from.take(len).read_to_end(&mut text)?;
    if got as u64 == len { Ok(Some(text)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
