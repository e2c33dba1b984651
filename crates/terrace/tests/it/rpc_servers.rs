//! Servers of ggml's RPC that break off, lie or fall silent at each of the messages of a load: every
//! command ends with one line and status 1, in time.

use crate::common::{bundled, error_line, failure, stderr, terrace};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace_testkit::thorough;

/// Time for a command to end. Most of them take a second.
const LIMIT: Duration = Duration::from_secs(60);

const ALLOC_BUFFER: u8 = 0;
const GET_ALIGNMENT: u8 = 1;
const GET_MAX_SIZE: u8 = 2;
const BUFFER_GET_BASE: u8 = 3;
const SET_TENSOR_HASH: u8 = 7;
const GET_TENSOR: u8 = 8;
const COPY_TENSOR: u8 = 9;
const GET_DEVICE_MEMORY: u8 = 11;
const GET_ALLOC_SIZE: u8 = 13;
const HELLO: u8 = 14;
const DEVICE_COUNT: u8 = 15;
/// Length of a command number and of the size of its request.
const HEAD: usize = 9;

/// Behaviour of a server when its time has come.
#[derive(Clone, Debug)]
enum Fault {
    /// It closes the connection.
    Close,
    /// It says nothing any more.
    Silence,
    /// It sends one byte per second.
    Drip,
    /// It sends this, and closes the connection.
    Send(Vec<u8>),
}

impl Fault {
    /// An answer of three bytes.
    fn short() -> Self {
        Self::Send([&3u64.to_le_bytes()[..], b"abc"].concat())
    }

    /// The first half of an answer.
    fn truncated(whole: usize) -> Self {
        Self::Send([&(whole as u64).to_le_bytes()[..], &vec![0; whole / 2]].concat())
    }

    /// An answer that would be 2^63 bytes long.
    fn huge() -> Self {
        Self::Send([&(1u64 << 63).to_le_bytes()[..], &[7; 64]].concat())
    }

    /// Bytes without a meaning.
    fn garbage() -> Self {
        Self::Send((1..=200u8).map(|byte| byte.wrapping_mul(167)).collect())
    }
}

/// A server that answers as it should until it gets a command for the last of some times.
struct Hostile {
    endpoint: String,
    /// Connections so far.
    connections: Arc<AtomicUsize>,
}

impl Hostile {
    fn start(command: u8, times: u32, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        // It ends with the test's process.
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                count.fetch_add(1, Ordering::Relaxed);
                let fault = fault.clone();
                std::thread::spawn(move || drop(serve(stream, (command, times), &fault)));
            }
        });
        Self { endpoint, connections }
    }
}

fn serve(mut stream: TcpStream, (command, mut times): (u8, u32), fault: &Fault) -> io::Result<()> {
    loop {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head)?;
        let size = u64::from_le_bytes(head[1..].try_into().unwrap());
        let mut request = vec![0; usize::try_from(size).unwrap()];
        stream.read_exact(&mut request)?;
        let answer = answer(head[0], &request);
        times = times.saturating_sub(u32::from(head[0] == command));
        if times > 0 {
            let Some(answer) = answer else { continue };
            stream.write_all(&framed(&answer))?;
            continue;
        }
        match fault {
            Fault::Close => return Ok(()),
            // Until the client has gone.
            Fault::Silence => return stream.read_exact(&mut vec![0; 1 << 20]),
            Fault::Drip => {
                for byte in framed(&answer.unwrap_or_default()) {
                    stream.write_all(&[byte])?;
                    std::thread::sleep(Duration::from_secs(1));
                }
                return stream.read_exact(&mut vec![0; 1 << 20]);
            }
            Fault::Send(bytes) => return stream.write_all(bytes),
        }
    }
}

fn framed(answer: &[u8]) -> Vec<u8> {
    [&(answer.len() as u64).to_le_bytes()[..], answer].concat()
}

/// The answer of an honest server; `None` if nothing.
fn answer(command: u8, request: &[u8]) -> Option<Vec<u8>> {
    let last = |len: usize| u64::from_le_bytes(request[request.len() - len..][..8].try_into().unwrap());
    let number = |number: u64| number.to_le_bytes().to_vec();
    Some(match command {
        ALLOC_BUFFER => [number(1 << 40), number(last(8))].concat(),
        GET_ALIGNMENT => number(64),
        GET_MAX_SIZE => number(1 << 40),
        BUFFER_GET_BASE => number(1 << 30),
        SET_TENSOR_HASH => vec![0],
        GET_TENSOR => vec![0; usize::try_from(last(8)).unwrap()],
        COPY_TENSOR => vec![1],
        GET_DEVICE_MEMORY => [number(1 << 30), number(1 << 30)].concat(),
        GET_ALLOC_SIZE => number(0),
        HELLO => [&[7, 0, 0, 0][..], &[0; 24]].concat(),
        DEVICE_COUNT => 1u32.to_le_bytes().into(),
        _ => return None,
    })
}

/// Runs a command until it ends by itself.
fn end_of(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("it does not end: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// `run` with all layers on a server's device.
fn run_with(server: &Hostile) -> Command {
    let mut command = terrace();
    command.args(["run", bundled().to_str().unwrap(), "-p", "x", "-n", "4", "--temp", "0"]);
    command.args(["-ngl", "99", "--rpc", &server.endpoint, "--rpc-timeout", "2"]);
    command
}

fn error_of(output: &Output, case: &str) -> String {
    assert_eq!(output.status.code(), Some(1), "{case}: {:?}: {}", output.status, stderr(output));
    error_line(&stderr(output))
}

#[test]
fn a_server_that_breaks_off_at_any_message_is_one_line() {
    // With the sizes of the answers. The first of these are asked for by Terrace, and ggml asks again.
    let messages = [
        (HELLO, 1, 28),
        (DEVICE_COUNT, 1, 4),
        (GET_ALIGNMENT, 1, 8),
        (GET_MAX_SIZE, 1, 8),
        (GET_DEVICE_MEMORY, 1, 16),
        (GET_DEVICE_MEMORY, 2, 16),
        (ALLOC_BUFFER, 1, 16),
        (ALLOC_BUFFER, 3, 16),
        (BUFFER_GET_BASE, 1, 8),
        (GET_ALLOC_SIZE, 1, 8),
        (GET_TENSOR, 1, 4),
    ];
    let faults =
        |size| [Fault::Close, Fault::short(), Fault::huge(), Fault::garbage(), Fault::truncated(size)];
    for (index, (message, times, size)) in messages.into_iter().enumerate() {
        let all = faults(size);
        // Each fault with some of the messages.
        let some = [index % all.len(), (index + 3) % all.len()];
        let chosen = thorough(some.to_vec(), (0..all.len()).collect());
        for fault in chosen {
            let case = format!("message {message}, {times}: {:?}", all[fault]);
            let server = Hostile::start(message, times, all[fault].clone());
            let error = error_of(&end_of(run_with(&server)), &case);
            assert!(error.contains(&server.endpoint), "{case}: {error}");
            assert_eq!(server.connections.load(Ordering::Relaxed), 1, "{case}: one connection");
        }
    }
}

#[test]
fn what_no_server_has_is_refused_by_every_command() {
    let model = bundled();
    let model = model.to_str().unwrap();
    let count = |devices: u32| Fault::Send(framed(&devices.to_le_bytes()));
    let alignment = |bytes: u64| Fault::Send(framed(&bytes.to_le_bytes()));
    let cases: [(u8, Fault, &str); 6] = [
        (DEVICE_COUNT, count(u32::MAX), "says that it has 4294967295 devices"),
        (DEVICE_COUNT, count(0), "has no devices"),
        (GET_ALIGNMENT, alignment(0), "gave no valid answer when asked for the alignment of its memory"),
        (
            GET_ALIGNMENT,
            alignment(1 << 62),
            "gave no valid answer when asked for the alignment of its memory",
        ),
        (HELLO, Fault::Send(framed(&[9; 28])), "speaks version 9.9"),
        (GET_DEVICE_MEMORY, Fault::short(), "gave no valid answer when asked for its free memory"),
    ];
    let commands: [&[&str]; 4] = [
        &["run", model, "-p", "x", "-n", "1"],
        &["serve", model, "--port", "0"],
        &["plan", model],
        &["machine", "--json", "--no-storage", "--seconds", "0"],
    ];
    for (index, (message, fault, part)) in cases.into_iter().enumerate() {
        let chosen = thorough(vec![commands[index % commands.len()]], commands.to_vec());
        for arguments in chosen {
            let server = Hostile::start(message, 1, fault.clone());
            let mut command = terrace();
            command.args(arguments).args(["--rpc", &server.endpoint]);
            let output = end_of(command);
            let error = error_of(&output, part);
            assert!(error.contains(part) && error.contains(&server.endpoint), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let cases = [
        (HELLO, Fault::Silence, "no answer; it may be busy with another client"),
        (HELLO, Fault::Drip, "no answer; it may be busy with another client"),
        (DEVICE_COUNT, Fault::Silence, "did not say the number of its devices within 2.0 s"),
        (GET_DEVICE_MEMORY, Fault::Drip, "did not say its free memory within 2.0 s"),
        (ALLOC_BUFFER, Fault::Silence, "has ended, or sent what is no answer"),
        (ALLOC_BUFFER, Fault::Drip, "has ended, or sent what is no answer"),
        (GET_TENSOR, Fault::Silence, "has ended, or sent what is no answer"),
    ];
    let waiting: Vec<(Hostile, Child, &str)> = cases
        .into_iter()
        .map(|(message, fault, part)| {
            let server = Hostile::start(message, 1, fault);
            let child = run_with(&server).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            (server, child, part)
        })
        .collect();
    for (server, mut child, part) in waiting {
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < LIMIT, "{part}: it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let error = error_of(&child.wait_with_output().unwrap(), part);
        assert!(error.contains(part) && error.contains(&server.endpoint), "{part}: {error}");
    }
}

/// A load that waits for a server ends at the first signal.
#[test]
fn a_signal_ends_a_load_that_waits() {
    for (kind, signal) in [("run", libc::SIGINT), ("serve", libc::SIGTERM)] {
        let server = Hostile::start(ALLOC_BUFFER, 1, Fault::Silence);
        let mut command = terrace();
        command.args([kind, bundled().to_str().unwrap(), "-ngl", "99", "--rpc", &server.endpoint]);
        command.args(["--rpc-timeout", "600"]);
        if kind == "serve" {
            command.args(["--port", "0"]);
        } else {
            command.args(["-p", "x"]);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while server.connections.load(Ordering::Relaxed) == 0 {
            assert!(child.try_wait().unwrap().is_none(), "{kind}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Until it waits for memory there, at the latest.
        std::thread::sleep(Duration::from_secs(1));
        // SAFETY: the child has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < LIMIT, "{kind} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(child.wait().unwrap().code(), Some(130), "{kind}");
    }
}

/// `failure` is for commands that print nothing before.
#[test]
fn a_server_that_cannot_be_reached_is_one_line() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = failure(
        &terrace().args(["plan", bundled().to_str().unwrap(), "--rpc", &closed]).output().unwrap(),
        1,
    );
    assert!(error.contains(&closed), "{error}");
}
