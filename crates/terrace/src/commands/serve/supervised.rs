//! A server whose model may lie on RPC servers: its engine runs in a child process.
//!
//! ggml aborts the process when it cannot talk to an RPC server. The process that the user started
//! only holds the listening socket, which it hands to the child as its standard input. If the child
//! ends because a server with weights is lost, another one takes its place, which answers that the
//! model is loading (503) while it loads the model again, without the servers that do not answer.

use super::{FAREWELL, REST, WRITING};
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use terrace_cli::error::CliError;
use terrace_cli::term::say;
use terrace_cli::term::terminal::Terminal;
use terrace_cli::term::watchdog;
use terrace_engine::options::DeviceOptions;
use terrace_ggml::devices::rpc::{RpcError, greet_rpc_server};
use terrace_platform::process::{self, spawn_listening};
use terrace_platform::signals::{Signal, Signals};
use terrace_server::{Listening, ServerError};

/// Tells a child that it is one, and whether it is the first.
const VARIABLE: &str = "_TERRACE_ENGINE_OF_SERVER";
const FIRST: &str = "first";
const LATER: &str = "later";
/// Tells a child that it serves one of several models, to its parent alone.
const BEHIND: &str = "behind";
/// The key that such a child asks for.
const KEY: &str = "_TERRACE_KEY_OF_SERVER";

/// Status of a child that has lost weights.
pub const LOST: u8 = 75;
/// Children that may fail in a row. One that was alive for a while does not count.
const FAILURES: u32 = 3;
const WHILE: Duration = Duration::from_secs(60);
/// Time for a server to notice that the last child is gone, and to answer the next one.
const BUSY: Duration = Duration::from_secs(10);

/// Things that a child got from its parent.
pub struct Handed {
    /// The listening socket.
    pub listening: Listening,
    /// True if weights were lost before, so that servers may not answer.
    pub again: bool,
    /// The key of the parent, if only that sends requests.
    pub behind: Option<String>,
}

impl Handed {
    /// Takes what the parent has handed over; `None` means that this process has no such parent.
    ///
    /// # Errors
    /// The standard input is no listening socket.
    pub fn take() -> Result<Option<Self>, CliError> {
        let Some(which) = terrace_cli::environment::var_os(VARIABLE) else { return Ok(None) };
        let failed = |source| CliError::Server(ServerError::Start(source));
        process::end_with_parent().map_err(failed)?;
        let socket = process::take_listener().map_err(failed)?;
        let listening = Listening::of(socket).map_err(CliError::Server)?;
        let behind = (which == BEHIND).then(|| terrace_cli::environment::var(KEY).unwrap_or_default());
        Ok(Some(Self { listening, again: which == LATER, behind }))
    }
}

/// Returns true if this process was started with its parent's own command line, of which the parent has warned.
pub fn has_the_parents_words() -> bool {
    terrace_cli::environment::var_os(VARIABLE).is_some_and(|which| which == FIRST || which == LATER)
}

/// Leaves out the RPC servers that do not answer, after some seconds. If there are any, the number of
/// layers on devices is chosen again.
pub fn place_again(devices: &mut DeviceOptions) {
    let before = devices.rpc.len();
    devices.rpc.retain(|server| match greet(server) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("{error}; the model is loaded without it");
            false
        }
    });
    if devices.rpc.len() < before {
        devices.n_gpu_layers = None;
    }
}

/// Waits until a server answers, if need be for a while.
fn greet(server: &str) -> Result<(), RpcError> {
    let begin = Instant::now();
    loop {
        match greet_rpc_server(server) {
            Err(RpcError::Connect { source, .. })
                if source.kind() == std::io::ErrorKind::TimedOut && begin.elapsed() < BUSY => {}
            other => return other,
        }
    }
}

/// Serves with children, until one ends that should not be replaced. Its status is this one's.
///
/// # Errors
/// The server cannot listen, or a child cannot be started.
pub fn supervise(host: &str, port: u16, grace: Duration) -> Result<ExitCode, CliError> {
    let listening = Listening::start(host, port)?;
    let terminal = Terminal::of_process();
    let mut signals =
        Signals::new(&[Signal::ChildEnded, Signal::HangUp, Signal::Interrupt, Signal::Terminate])
            .map_err(CliError::io("signals"))?;
    // The child ends before, unless it is stopped; it does not outlive this process.
    watchdog::watch(grace + REST + WRITING + 2 * FAREWELL)?;
    let socket = listening.into_socket();
    let mut child = start(&socket, FIRST)?;
    let (mut begin, mut first, mut failures, mut stopping) = (Instant::now(), true, 0, false);
    for signal in signals.forever() {
        if signal != Signal::ChildEnded {
            let closed = signal == Signal::HangUp && terminal.is_some_and(Terminal::is_gone);
            if closed || signal != Signal::HangUp {
                stopping = true;
                watchdog::begin();
            }
            process::send(&child, if closed { Signal::Terminate } else { signal });
            continue;
        }
        let Some(status) = child.try_wait().map_err(CliError::io("the engine's process"))? else { continue };
        // A child that has lost weights had loaded them.
        let worked = begin.elapsed() > WHILE || status.code() == Some(LOST.into());
        failures = if worked { 0 } else { failures + 1 };
        if stopping || failures == FAILURES || !is_replaced(status, first) {
            return Ok(exit_code(status));
        }
        say!("warning: the engine's process ended ({status}); reloading the model");
        (child, begin, first) = (start(&socket, LATER)?, Instant::now(), false);
    }
    unreachable!("signals come for ever");
}

/// Returns true if another child takes the place of one that has ended.
fn is_replaced(status: ExitStatus, first: bool) -> bool {
    if process::ended_by_signal(status).is_some() {
        return true;
    }
    match status.code() {
        // A failed assertion ends the process with this as well, and so does a server that is lost
        // during a load.
        Some(1) => !first,
        code => code == Some(LOST.into()),
    }
}

fn start(socket: &TcpListener, which: &str) -> Result<Child, CliError> {
    let start = || spawn_listening(command(which)?.args(std::env::args_os().skip(1)), socket);
    start().map_err(CliError::io("cannot start the engine's process"))
}

/// Starts a child that serves one of several models on this socket, to whoever has the key. It ends with
/// the thread that calls this.
pub fn start_model(
    socket: &TcpListener,
    arguments: impl IntoIterator<Item = OsString>,
    key: &str,
) -> io::Result<Child> {
    // Its output would be the address.
    spawn_listening(command(BEHIND)?.args(arguments).env(KEY, key).stdout(Stdio::null()), socket)
}

fn command(which: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, which);
    // A terminal sends Ctrl-C to the parent alone, which passes it on.
    process::in_own_group(&mut command);
    Ok(command)
}

/// The status of a child, as shells count it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code =
        match status.code().unwrap_or_else(|| 128 + process::ended_by_signal(status).unwrap_or_default()) {
            code if code == i32::from(LOST) => 1,
            code => code,
        };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn only_what_another_child_may_mend_is_replaced() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        for (status, first, replaced) in [
            (exited(0), false, false),
            (exited(1), true, false),
            (exited(1), false, true),
            (exited(2), false, false),
            (exited(LOST.into()), true, true),
            (exited(130), true, false),
            (ExitStatus::from_raw(6), true, true),
        ] {
            assert_eq!(is_replaced(status, first), replaced, "{status}");
        }
        assert_eq!(exit_code(ExitStatus::from_raw(6)), ExitCode::from(134));
        assert_eq!(exit_code(exited(LOST.into())), ExitCode::from(1));
    }
}
