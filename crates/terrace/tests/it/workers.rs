//! `terrace worker`: a real one, and what it refuses.

use crate::common::{bundled, error_line, failure, json, run, terrace};
use crate::server::{Server, TEST_TIMEOUT};
use serde_json::json as object;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// A running worker, which is killed when this value is dropped.
pub struct Worker {
    child: Child,
    /// What it said.
    line: String,
}

impl Worker {
    pub fn start(args: &[&str]) -> Self {
        let mut command = terrace();
        command.args(["worker", "--listen", "127.0.0.1:0", "--cache", "off"]).args(args);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut this = Self { child, line };
        if this.line.starts_with("worker at ") {
            return this;
        }
        let ended = this.ended();
        panic!("`{}`: {ended:?}", this.line);
    }

    /// `127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        self.line.strip_prefix("worker at ").unwrap().split(": ").next().unwrap()
    }

    /// Number of its process.
    pub fn process(&self) -> String {
        self.child.id().to_string()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// Waits for its end. Returns what it wrote to stderr.
    fn ended(&mut self) -> (ExitStatus, String) {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < TEST_TIMEOUT, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_worker_lends_what_it_says_and_ends_when_told() {
    let mut worker = Worker::start(&["--memory", "96MiB"]);
    let endpoint = worker.endpoint().to_owned();
    assert_eq!(worker.line, format!("worker at {endpoint}: CPU (96 MiB, 1 threads); cache off\n"));
    let model = bundled();
    let fixed =
        ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "8", "--temp", "0", "--json"];
    let here = json(&run(fixed));
    let layers = ["--rpc", &endpoint, "-ngl", "99"];
    for _ in 0..2 {
        let there = json(&run(fixed.iter().chain(&layers)));
        assert_eq!(there["text"], here["text"]);
        assert!(there["plan"]["placement"]["on_devices"] != here["plan"]["placement"]["on_devices"]);
    }
    let more = ["--rpc", &endpoint, "-ngl", "99", "--vram-budget", "10GiB"];
    let machine = json(&run(["machine", "--json", "--no-storage", "--seconds", "0", "--types", "q4_0"]
        .iter()
        .chain(&["--rpc", &endpoint])));
    assert_eq!(machine["devices"][0]["memory_total"], 96 << 20, "{machine}");
    let output = run(fixed.iter().chain(&more).chain(&["--ctx", "400000"]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("devices have 96 MiB for layers, not enough for all"), "{said}");
    assert_eq!(json(&output)["text"], here["text"], "a context of 400000 tokens in 96 MiB");
    worker.signal(libc::SIGTERM);
    let (status, said) = worker.ended();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

#[test]
fn what_a_worker_cannot_do_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("cache");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--listen", &taken, "--cache", "off"], 1, "the address is already in use"),
        (&["--listen", "0.0.0.0:0"], 2, "neither encryption nor authentication"),
        (&["--listen", "127.0.0.1:0", "--device", "CPU,GPU7"], 2, "there is no device GPU7"),
        (&["--listen", "127.0.0.1:0", "--memory", "8000TiB"], 2, "--memory 8000 TiB: CPU has "),
        (&["--listen", "127.0.0.1:0", "--cache", below.to_str().unwrap()], 1, "the cache "),
    ];
    for (args, code, part) in cases {
        let error = failure(&terrace().arg("worker").args(args).output().unwrap(), code);
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn a_cache_has_one_worker() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("new/folder");
    let command = || {
        let mut command = terrace();
        command.args(["worker", "--listen", "127.0.0.1:0", "--cache"]).arg(&folder);
        command
    };
    let worker = Worker::of(command());
    assert!(worker.line.ends_with(&format!("cache {}\n", folder.display())), "{}", worker.line);
    let error = failure(&command().output().unwrap(), 1);
    assert_eq!(error, format!("the cache {}: another worker uses it", folder.display()));
    drop(worker);
    drop(Worker::of(command()));
}

/// Copies are computed by the CPU once a worker has been silent for long enough.
#[test]
fn a_worker_that_is_stopped_is_given_up() {
    let worker = Worker::start(&["--memory", "64MiB"]);
    let options = [
        &["--rpc", worker.endpoint(), "--rpc-timeout", "8", "--ctx", "1024", "--ram-budget", "6MiB"][..],
        &["-ngl", "0", "--hot-cache", "2MiB", "--hot-update", "512KiB", "--hot-lanes", "always"],
    ]
    .concat();
    let server = Server::start(&bundled(), options);
    let ask = object!({"prompt": "In the beginning", "max_tokens": 900, "stream": true});
    let mut answer = server.begin("/v1/completions", &ask);
    answer.read_exact(&mut [0; 512]).unwrap();
    worker.signal(libc::SIGSTOP);
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]") && !rest.contains("error"), "{rest}");
    // That answer may have been complete before.
    server.post("/v1/completions", &object!({"prompt": "And God said", "max_tokens": 4})).ok();
    let metrics = server.get("/metrics").text;
    let mut lost = metrics.lines().filter(|line| line.contains("layer_hot_lost{"));
    assert!(lost.any(|line| line.ends_with(" 1")), "{metrics}");
}

/// One worker holds layers, the other one copies of experts. The latter ends.
#[test]
fn a_worker_with_copies_is_done_without_beside_one_with_layers() {
    let layers = Worker::start(&["--memory", "64MiB"]);
    let copies = Worker::start(&["--memory", "64MiB"]);
    let rpc = format!("{},{}", layers.endpoint(), copies.endpoint());
    let options = [
        &["--rpc", &rpc, "--ctx", "1024", "--ram-budget", "6MiB", "--vram-budget", "RPC1=3MiB"][..],
        &["-ngl", "2", "--hot-cache", "RPC0=off", "--hot-cache", "RPC1=2MiB", "--hot-update", "512KiB"],
        &["--hot-lanes", "always"],
    ]
    .concat();
    let mut server = Server::start(&bundled(), options);
    let prompt = "In the beginning";
    let ask = |tokens: u32, stream: bool| object!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": stream});
    let text = |server: &Server| {
        let answer = server.post("/v1/completions", &ask(400, false)).ok();
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let expected = text(&server);
    let lost = |server: &Server| {
        let metrics = server.get("/metrics").text;
        metrics.lines().any(|line| line.contains("layer_hot_lost{") && line.ends_with(" 1"))
    };
    assert!(!lost(&server));
    let mut answer = server.begin("/v1/completions", &ask(900, true));
    answer.read_exact(&mut [0; 512]).unwrap();
    let ended = copies.endpoint().to_owned();
    drop(copies);
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]") && !rest.contains("error"), "{rest}");
    assert_eq!(text(&server), expected);
    assert!(lost(&server) && server.is_running());
    server.signal("-TERM");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("RPC server {ended} has ended")), "{said}");
    assert!(!said.contains("error: ") && !said.contains("reloading the model"), "{said}");
}

/// A worker has one client, from the first word on: the other one is told so, and ends.
#[test]
fn of_two_servers_one_gets_the_worker() {
    let worker = Worker::start(&["--memory", "256MiB"]);
    let start = || {
        let mut command = terrace();
        command.args(["serve", bundled().to_str().unwrap(), "--port", "0", "-ngl", "3"]);
        command.args(["--rpc", worker.endpoint(), "--rpc-timeout", "5"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut servers = [start(), start()];
    let begin = Instant::now();
    let lost = loop {
        if let Some(lost) = servers.iter_mut().position(|server| server.try_wait().unwrap().is_some()) {
            break lost;
        }
        assert!(begin.elapsed() < TEST_TIMEOUT, "neither ends");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let [first, second] = servers;
    let (mut winner, loser) = if lost == 0 { (second, first) } else { (first, second) };
    let output = loser.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = error_line(&String::from_utf8_lossy(&output.stderr));
    assert!(error.ends_with("no answer; it may be busy with another client"), "{error}");
    let mut lines = BufReader::new(winner.stderr.take().unwrap()).lines();
    let ready = lines.find(|line| line.as_ref().unwrap().starts_with("ready: "));
    assert!(ready.is_some(), "the other one serves");
    // SAFETY: the child has not been waited for, so the number is its own.
    assert_eq!(unsafe { libc::kill(winner.id() as libc::pid_t, libc::SIGTERM) }, 0);
    assert_eq!(winner.wait().unwrap().code(), Some(0));
}

#[test]
fn the_link_to_a_worker_is_measured_and_kept() {
    let worker = Worker::start(&["--memory", "64MiB"]);
    let model = bundled();
    let plan = |probe: &str| {
        let args =
            ["plan", model.to_str().unwrap(), "--json", "--rpc", worker.endpoint(), "--rpc-probe", probe];
        let plan = json(&run(args));
        let link = format!("RPC0 link to {}", worker.endpoint());
        let found = plan["rates"].as_array().unwrap().iter().find(|rate| rate["what"] == link.as_str());
        let rate = found.unwrap_or_else(|| panic!("{:#}", plan["rates"]));
        (rate["value"].as_f64().unwrap(), rate["source"].as_str().unwrap().to_owned())
    };
    assert_eq!(plan("off"), (24e9, "assumed".into()));
    let measured = plan("on");
    assert!(measured.0 > 0.0 && measured.1.starts_with("quick probe of "), "{measured:?}");
    let (again, source) = plan("on");
    assert!((again / measured.0 - 1.0).abs() < 1e-9, "what was found moments ago counts: {again}");
    assert_eq!(source, measured.1);
}
