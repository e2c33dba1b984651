//! Clients of `terrace worker` that are none: what they send ends their own connection, and no other
//! client's service.

use crate::common::{bundled, json, run};
use crate::server::TEST_TIMEOUT;
use crate::workers::Worker;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use terrace_model::ByteSize;
use terrace_testkit::rpc::resident;

const ALLOC_BUFFER: u8 = 0;
const BUFFER_GET_BASE: u8 = 3;
const SET_TENSOR: u8 = 6;
const GRAPH_COMPUTE: u8 = 10;
const INIT_TENSOR: u8 = 12;
const HELLO: u8 = 14;
const DEVICE_COUNT: u8 = 15;

fn message(command: u8, request: &[u8]) -> Vec<u8> {
    [&[command], &(request.len() as u64).to_le_bytes()[..], request].concat()
}

/// A connection on which hello was said. The worker may be about to listen again.
fn client(worker: &Worker) -> TcpStream {
    let begin = Instant::now();
    loop {
        match try_client(worker) {
            Ok(stream) => return stream,
            Err(error) => assert!(begin.elapsed() < TEST_TIMEOUT, "the worker serves nobody: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn try_client(worker: &Worker) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(worker.endpoint())?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    ask(&mut stream, HELLO, &[0; 24], 28)?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream, command: u8, request: &[u8], len: usize) -> io::Result<Vec<u8>> {
    stream.write_all(&message(command, request))?;
    let mut answer = vec![0; 8 + len];
    stream.read_exact(&mut answer)?;
    Ok(answer.split_off(8))
}

/// Sends bytes, and waits until the worker has closed the connection.
fn is_cut(mut stream: TcpStream, bytes: &[u8]) {
    // The worker may have closed it before it has read all.
    let _ = stream.write_all(bytes);
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert!(!matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    }
}

/// ggml's form of a tensor of one float at an address of a buffer.
fn tensor(buffer: u64, data: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(buffer.to_le_bytes());
    [1u32, 1, 1, 1, 4, 4, 4, 4].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    // Operation, its parameters, flags, sources and the view.
    bytes.extend([0; 4 + 64 + 4 + 80 + 8 + 8]);
    bytes.extend(data.to_le_bytes());
    bytes.extend([0; 64 + 4]);
    assert_eq!(bytes.len(), 296);
    bytes
}

#[test]
fn what_clients_send_ends_their_own_connection() {
    let worker = Worker::start(&["--memory", "64MiB"]);
    let sized = |command: u8, size: u64| [&[command], &size.to_le_bytes()[..], b"some bytes"].concat();
    for command in [SET_TENSOR, GRAPH_COMPUTE] {
        for size in [u64::MAX, 1 << 63, 1 << 62, 1 << 50] {
            is_cut(client(&worker), &sized(command, size));
        }
    }
    is_cut(client(&worker), &sized(DEVICE_COUNT, 1 << 40));
    is_cut(client(&worker), &[255; 100]);
    is_cut(client(&worker), &message(GRAPH_COMPUTE, &[255; 64]));
    // Memory that is no part of a buffer: an assertion of ggml's, outside of computing.
    for data in [0, u64::MAX - 1] {
        let mut stream = client(&worker);
        let allocated = ask(&mut stream, ALLOC_BUFFER, &[&[0; 4], &4096u64.to_le_bytes()[..]].concat(), 16);
        let buffer = u64::from_le_bytes(allocated.unwrap()[..8].try_into().unwrap());
        assert_ne!(buffer, 0);
        ask(&mut stream, BUFFER_GET_BASE, &buffer.to_le_bytes(), 8).unwrap();
        is_cut(stream, &message(INIT_TENSOR, &tensor(buffer, data)));
    }
    // What was taken is given back.
    let mut stream = client(&worker);
    let all = [&[0; 4], &ByteSize::mib(64).bytes().to_le_bytes()[..]].concat();
    assert_ne!(ask(&mut stream, ALLOC_BUFFER, &all, 16).unwrap()[..8], [0; 8]);
    drop(stream);
    for _ in 0..40 {
        drop(TcpStream::connect(worker.endpoint()));
    }
    drop(client(&worker));
    let used = resident(&worker.process()).unwrap();
    assert!(used < ByteSize::mib(256), "{used}");
    computes(&worker);
}

/// The worker computes what this machine computes.
fn computes(worker: &Worker) {
    let model = bundled();
    let fixed =
        ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "8", "--temp", "0", "--json"];
    let there = json(&run(fixed.iter().chain(&["--rpc", worker.endpoint(), "-ngl", "99"])));
    assert_eq!(there["text"], json(&run(fixed))["text"]);
}

#[test]
fn a_client_that_says_nothing_is_not_waited_for() {
    let worker = Worker::start(&["--memory", "64MiB"]);
    let silent = TcpStream::connect(worker.endpoint()).unwrap();
    let mut slow = TcpStream::connect(worker.endpoint()).unwrap();
    slow.write_all(&[HELLO]).unwrap();
    is_cut(silent, &[]);
    is_cut(slow, &[]);
    // One that has said hello may say nothing for as long as it likes.
    let mut first = client(&worker);
    std::thread::sleep(Duration::from_secs(12));
    ask(&mut first, DEVICE_COUNT, &[], 4).unwrap();
    drop(first);
    computes(&worker);
}
