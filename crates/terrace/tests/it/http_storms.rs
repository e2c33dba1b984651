//! Many clients of `terrace serve` at once: they connect, ask, or disconnect wherever they are, and
//! leave nothing behind.

use crate::common::{bundled, failure, stdout, terrace};
use crate::server::{Server, golden};
use crate::wire::{Received, Wire, get, post};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use terrace_testkit::thorough;

const PROMPT: &str = "In the beginning God created the heaven and the earth.";
const MIB: u64 = 1 << 20;

/// What a server holds when nobody asks anything.
struct Idle {
    descriptors: usize,
    threads: usize,
    memory: u64,
}

impl Idle {
    /// Waits until nobody does, first.
    fn of(server: &Server) -> Self {
        server.wait_for(|server| server.processing() == 0 && server.waiting() == 0);
        Self { descriptors: server.descriptors(), threads: server.threads(), memory: server.memory() }
    }

    /// Waits until the server holds this again. One more connection may not be closed yet, and one
    /// more thread that reads requests ends after some seconds without any.
    #[track_caller]
    fn returns(&self, server: &Server, mib: u64) {
        server.wait_for(|server| server.processing() == 0 && server.waiting() == 0);
        server.wait_for(|server| server.descriptors() <= self.descriptors + 1);
        server.wait_for(|server| server.threads() <= self.threads + 1);
        let grown = server.memory().saturating_sub(self.memory);
        assert!(grown < mib * MIB, "{} MiB more", grown / MIB);
    }
}

/// Lets this process, and servers that it starts, have connections by the thousand.
fn many_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = Some(maximum.unwrap_or(u64::MAX).min(20_000));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

fn ask(wire: &mut Wire, request: &str) -> Received {
    wire.send(request).unwrap();
    wire.receive().unwrap()
}

#[test]
fn a_crowd_is_answered_and_those_beyond_it_are_refused() {
    many_descriptors();
    let (room, beyond) = thorough((60, 40), (1000, 300));
    let limits = ["--max-connections", &room.to_string(), "--ctx", "256", "--idle-timeout", "600"];
    let server = Server::start(&bundled(), limits);
    let expected = golden(PROMPT, 4);
    let body = json!({"prompt": PROMPT, "max_tokens": 4, "cache_prompt": false});
    let first = server.post("/v1/completions", &body).ok();
    assert_eq!(first["choices"][0]["text"], expected);
    let idle = Idle::of(&server);
    for _ in 0..2 {
        // All connect, and then all ask.
        let mut crowd: Vec<Wire> = (0..room).map(|_| Wire::connect(&server)).collect();
        for wire in &mut crowd {
            assert_eq!(ask(wire, &get("/health")).json()["status"], "ok");
        }
        // Those beyond it have a whole second.
        std::thread::scope(|scope| {
            for _ in 0..beyond {
                scope.spawn(|| {
                    let refused = ask(&mut Wire::connect(&server), &post("/v1/completions", &body));
                    assert_eq!(refused.head.status, 503, "{refused:?}");
                    assert_eq!(refused.json()["error"]["code"], "too_many_connections");
                    assert!(refused.head.header("retry-after").is_some(), "{refused:?}");
                });
            }
        });
        // The crowd was not disturbed.
        for wire in crowd.iter_mut().step_by(room / 10) {
            assert_eq!(ask(wire, &post("/v1/completions", &body)).json()["choices"][0]["text"], expected);
        }
        // A place that has become free is found at once.
        drop(crowd.pop());
        assert_eq!(server.post("/v1/completions", &body).ok()["choices"][0]["text"], expected);
        drop(crowd);
        idle.returns(&server, 32);
    }
}

/// Sends a request, and disconnects somewhere between its first byte and the last one of the
/// answer. Returns whether the whole request was sent.
fn storm(server: &Server, random: &mut fastrand::Rng) -> bool {
    let stream = random.bool();
    let tokens = random.u32(1..200);
    let body =
        json!({"prompt": PROMPT, "max_tokens": tokens, "stream": stream, "cache_prompt": random.bool()});
    let mut request = post("/v1/completions", &body);
    let whole = random.u8(0..3) > 0;
    if whole {
        // Some send more than that.
        request += &get("/health")[..random.usize(..40) / 2];
    } else {
        request.truncate(random.usize(..request.len()));
    }
    let mut wire = Wire::connect(server);
    wire.send(request).unwrap();
    match random.u8(0..4) {
        // At once.
        0 => {}
        // While it is queued, or computed.
        1 => std::thread::sleep(Duration::from_millis(random.u64(..200))),
        // In the middle of the answer.
        _ if whole && stream => {
            let chunks = if wire.head().unwrap().is_chunked() { random.u8(..10) } else { 0 };
            (0..chunks).try_for_each(|_| wire.chunk().unwrap().map(drop));
        }
        _ if whole => {
            wire.head().unwrap();
        }
        _ => {}
    }
    if random.bool() {
        wire.reset();
    }
    whole
}

#[test]
fn clients_that_disconnect_anywhere_leave_nothing_behind() {
    let (clients, rounds) = thorough((32, 8), (128, 20));
    let streamed = ["--stream", "experts", "--ram-budget", "8MiB", "--parallel", "2", "--ctx", "256"];
    let server = Server::start(&bundled(), streamed.iter().chain(&["--queue", "16"]));
    let expected = golden(PROMPT, 16);
    let body = json!({"prompt": PROMPT, "max_tokens": 16, "cache_prompt": false});
    let text = |answer: &Value| answer["choices"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text(&server.post("/v1/completions", &body).ok()), expected);
    let idle = Idle::of(&server);
    let whole = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (server, whole) = (&server, &whole);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(client);
                for _ in 0..rounds {
                    whole.fetch_add(usize::from(storm(server, &mut random)), Ordering::Relaxed);
                }
            });
        }
        // One who stays is answered all the while, or told that the queue is full.
        for _ in 0..rounds {
            let reply = server.post("/v1/completions", &body);
            if reply.status == 429 {
                assert_eq!(reply.error(429)["code"], "queue_full");
            } else {
                assert_eq!(text(&reply.ok()), expected);
            }
        }
    });
    assert!(whole.into_inner() > 0);
    idle.returns(&server, 48);
    let slots = server.get("/slots").ok();
    assert!(slots.as_array().unwrap().iter().all(|slot| slot["is_processing"] == false), "{slots}");
    for _ in 0..3 {
        assert_eq!(text(&server.post("/v1/completions", &body).ok()), expected);
    }
}

#[test]
fn few_open_files_are_enough_and_too_few_are_said() {
    let limited = |files: u64| {
        move |command: &mut Command| {
            let limit = Rlimit { current: Some(files), maximum: Some(files) };
            // SAFETY: between fork and exec only a system call is made.
            unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Nofile, limit)?)) };
        }
    };
    let mut command = terrace();
    command.args(["serve", bundled().to_str().unwrap(), "--port", "0"]);
    limited(16)(&mut command);
    let output = command.output().unwrap();
    let error = failure(&output, 2);
    assert!(error.contains("16 files") && stdout(&output).is_empty(), "{error}: {}", stdout(&output));

    let server = Server::start_with(&bundled(), ["--ctx", "256", "--idle-timeout", "600"], |command| {
        limited(64)(command);
        command
    });
    let chat = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
    server.post("/v1/chat/completions", &chat).ok();
    let flood: Vec<Wire> = (0..200).map(|_| Wire::connect(&server)).collect();
    // Those that were let in are answered, and one that leaves makes room at once.
    let mut first = flood.into_iter();
    let mut some: Vec<Wire> = first.by_ref().take(5).collect();
    for wire in &mut some {
        assert_eq!(ask(wire, &post("/v1/chat/completions", &chat)).head.status, 200);
    }
    drop(first);
    drop(some);
    server.post("/v1/chat/completions", &chat).ok();
}
