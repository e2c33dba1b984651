//! `terrace serve` under everything at once, for as long as is asked for: many clients, of whom some
//! misbehave and some mean harm, a streamed model whose slots shrink and grow, drafts, files that
//! change, server slots that are saved and restored, a log that is not read, and a worker with copies
//! of experts that dies.
//!
//! A few seconds in `make test`, five minutes in `make test-all`, and `scripts/soak MINUTES`.

mod client;
mod constrained;
mod figures;
mod golden;
mod hostile;
mod log_reader;
mod neighbour;
mod reloads;
mod requests;
mod samples;
mod slot_files;

use crate::server::Server;
use crate::variants::Variants;
use crate::workers::Worker;
use client::Client;
use figures::Figures;
use golden::Golden;
use log_reader::read_by_turns;
use neighbour::Neighbour;
use reloads::{Epochs, Reloads};
use samples::Samples;
use serde_json::json;
use slot_files::SLOTS;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_testkit::thorough;

/// Number of clients at once.
const CLIENTS: u64 = 64;
/// Time between two reloads.
const BETWEEN_RELOADS: Duration = Duration::from_secs(2);
const BETWEEN_SAMPLES: Duration = Duration::from_millis(500);
/// Number of further descriptors that are no leak: files of other variants, placeholders of closed
/// ones, and connections to the processes that apply chat templates.
const FEW: usize = 16;
const MIB: u64 = 1 << 20;

/// How long the soak lasts. `SOAK_MINUTES` sets it.
fn length() -> Duration {
    match std::env::var("SOAK_MINUTES") {
        Ok(minutes) => Duration::from_secs_f64(minutes.parse::<f64>().unwrap() * 60.0),
        Err(_) => thorough(Duration::from_secs(6), Duration::from_secs(300)),
    }
}

#[test]
fn many_clients_get_exact_answers_while_files_and_memory_change() {
    let length = length();
    let variants = Variants::new();
    let golden = Golden::of(&variants);
    let neighbour = Neighbour::new(variants.dir(), length);
    let mut worker = Some(Worker::start(&["--memory", "64MiB"]));
    let mut server = start(&variants, &neighbour, worker.as_ref().unwrap());
    server.follow_engine();
    let log = read_by_turns(server.take_stderr());
    let before = server.post("/v1/completions", &json!({"prompt": "A", "max_tokens": 1}));
    before.ok();
    let begin = Instant::now();
    let state = State {
        server: &server,
        golden: &golden,
        epochs: &Epochs::new(),
        stop: &AtomicBool::new(false),
        failure: &Mutex::new(None),
        begin,
    };
    let idle = server.descriptors();
    let (mut samples, mut figures, mut reloads) =
        (Samples::new(&server), Figures::default(), Reloads::default());
    std::thread::scope(|scope| {
        let start = |number| {
            let mut client = Client::new(state, number);
            scope.spawn(move || {
                let _ended = WhenEnded(state.stop);
                client.run();
                client.figures
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        scope.spawn(|| neighbour.run(state.stop));
        let _ended = WhenEnded(state.stop);
        let mut next = Instant::now() + BETWEEN_RELOADS;
        while begin.elapsed() < length && !state.stop.load(Ordering::Relaxed) {
            std::thread::sleep(BETWEEN_SAMPLES);
            samples.take();
            if begin.elapsed() > length / 2 {
                // Killed, in the middle of a product.
                drop(worker.take());
            }
            if Instant::now() >= next {
                reloads.next(&server, &variants, state.epochs);
                next = Instant::now() + BETWEEN_RELOADS;
            }
        }
        state.stop.store(true, Ordering::Relaxed);
        for client in clients {
            figures.add(client.join().unwrap());
        }
    });
    if let Some(failure) = &*state.failure.lock().unwrap() {
        panic!("{failure}");
    }
    report(&figures, &samples, &reloads, begin.elapsed());
    ends_as_it_began(state, idle, &variants, &mut reloads);
    assert!(figures.exact > 0 && reloads.replaced > 0, "something was compared");
    if length > Duration::from_secs(240) {
        assert!(samples.budgets() > 1, "memory was short, and then not");
        samples.are_flat();
    }
    eprintln!("log: {} bytes read", ends_when_told(server, log));
}

/// What all clients share.
#[derive(Clone, Copy)]
struct State<'a> {
    server: &'a Server,
    golden: &'a Golden,
    epochs: &'a Epochs,
    stop: &'a AtomicBool,
    failure: &'a Mutex<Option<String>>,
    begin: Instant,
}

impl State<'_> {
    /// Notes the first failure, and ends the soak.
    fn fail(&self, what: String) {
        let after = self.begin.elapsed().as_secs_f64();
        self.failure.lock().unwrap().get_or_insert(format!("after {after:.1} s: {what}"));
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Ends the soak, also after a panic.
struct WhenEnded<'a>(&'a AtomicBool);

impl Drop for WhenEnded<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn start(variants: &Variants, neighbour: &Neighbour, worker: &Worker) -> Server {
    let mut args = ["--stream", "experts", "--ram-budget", "14MiB", "--adapt", "on", "--ctx", "512"].to_vec();
    let slots = SLOTS.to_string();
    args.extend(["--parallel", &slots, "--slot-save-path", variants.dir().to_str().unwrap()]);
    args.extend(["--draft", "ngram", "--log-format", "json", "--grace", "20"]);
    // Only copies, so that nothing is lost with the worker.
    args.extend(["--rpc", worker.endpoint(), "-ngl", "0", "--hot-cache", "2MiB", "--hot-update", "512KiB"]);
    // The model's own has no place for tools.
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tools.jinja");
    let args = args.into_iter().chain(["--chat-template-file", template]);
    Server::start(variants.served(), args.chain(neighbour.args()))
}

/// No request is left, no descriptor is kept, and the server says what it should.
fn ends_as_it_began(state: State<'_>, idle: usize, variants: &Variants, reloads: &mut Reloads) {
    let server = state.server;
    server.wait_for(|server| server.processing() == 0 && server.waiting() == 0);
    server.wait_for(|server| server.descriptors() <= idle + FEW);
    for _ in 0..3 {
        state.golden.check(server, state.epochs);
        reloads.next(server, variants, state.epochs);
    }
    state.golden.check(server, state.epochs);
}

/// The server ends when it is told, in the middle of an answer. Returns the number of bytes that were read of its log.
fn ends_when_told(server: Server, log: JoinHandle<u64>) -> u64 {
    let mut answer =
        server.begin("/v1/completions", &json!({"prompt": "A", "max_tokens": 400, "stream": true}));
    answer.read_exact(&mut [0; 256]).unwrap();
    server.signal("-TERM");
    let (status, _) = server.ended();
    assert_eq!(status.code(), Some(0));
    log.join().unwrap()
}

fn report(figures: &Figures, samples: &Samples, reloads: &Reloads, length: Duration) {
    eprintln!("soak of {:.1} minutes, {CLIENTS} clients\n{figures}", length.as_secs_f64() / 60.0);
    eprintln!("{reloads}");
    eprintln!("{samples}");
}
