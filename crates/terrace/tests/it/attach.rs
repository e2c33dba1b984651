//! `terrace attach`, with a stand-in for a process that has the plug-in.

use crate::common::{failure, stderr, stdout, terrace};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Output;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A folder of sockets.
struct Sockets(TempDir);

impl Sockets {
    fn new() -> Self {
        // Paths of sockets are short.
        let this = Self(tempfile::tempdir().unwrap());
        fs::create_dir(this.folder()).unwrap();
        this
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("terrace")
    }

    /// A process that answers one line to the first request. Returns the request.
    fn process(&self, number: u32, answer: String) -> JoinHandle<Value> {
        let listener = UnixListener::bind(self.folder().join(format!("{number}.sock"))).unwrap();
        std::thread::spawn(move || {
            loop {
                let (stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                // Whoever only looks whether this is there asks for nothing.
                if !line.is_empty() {
                    writeln!(&stream, "{answer}").unwrap();
                    return serde_json::from_str(&line).unwrap();
                }
            }
        })
    }

    fn attach(&self, words: &[&str]) -> Output {
        terrace().arg("attach").args(words).env("XDG_RUNTIME_DIR", self.0.path()).output().unwrap()
    }
}

#[test]
fn a_process_is_asked_and_its_answer_shown() {
    let sockets = Sockets::new();
    let report = json!({
        "version": 1, "process": 77, "program": "llama-server", "budget": 3 << 20, "peak_rss_bytes": 64 << 20,
        "models": [{
            "path": "/models/a\u{1b}.gguf", "epoch": 2, "slots_in_use": 1 << 20,
            "plan": {"managed_bytes": 20 << 20, "managed_tensors": 18, "resident": 1 << 20},
            "store": {
                "bytes_read": 5 << 20, "requests": 9, "hits": 3, "misses": 1, "hit_rate": 0.75,
                "read_gbps": 2.5, "stall_ms": 1500.0, "budget_now": 2 << 20,
            },
        }],
        "freed": [{}],
    });
    let request = sockets.process(77, json!({"version": 1, "ok": report}).to_string());
    let output = sockets.attach(&[]);
    let text = stdout(&output);
    for part in [
        "llama-server, process 77: budget 3 MiB",
        "20 MiB of 18 tensors; 1 MiB stay with the program; reloaded, epoch 2",
        "1 MiB of 2 MiB in use",
        "75.0 % hits",
        "1.50 s waiting",
        "freed since the start: 1",
    ] {
        assert!(text.contains(part), "{part}: {text}{}", stderr(&output));
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(request.join().unwrap(), json!({"version": 1, "command": "stats"}));
    // Its file is still there, but the process has ended.
    let error = failure(&sockets.attach(&["77"]), 1);
    assert!(error.contains("77.sock: "), "{error}");
    assert!(failure(&sockets.attach(&[]), 1).contains("no process"));

    let answer = json!({"version": 1, "ok": {"budget": 1 << 30, "models": [{
        "path": "m", "slots": 5 << 20, "least_slots": 1 << 20, "most_slots": 5 << 20, "resident": 0, "problem": null,
    }]}});
    let request = sockets.process(78, answer.to_string());
    let output = sockets.attach(&["78", "budget", "1GiB"]);
    assert!(stdout(&output).contains("m: slots of 5 MiB (from 1 MiB to 5 MiB)"), "{}", stderr(&output));
    assert_eq!(request.join().unwrap()["bytes"], 1 << 30);
}

#[test]
fn a_learn_file_is_sent_without_its_times() {
    let sockets = Sockets::new();
    let file = sockets.0.path().join("learned.json");
    let learned = json!({
        "schema": "llama.cpp.moe_layer_opt_perf.v1",
        "layers": [{"layer": 3, "calls": 2, "total_moe_time_per_call_us": 7.5, "experts": [[1, 5]]}],
    });
    fs::write(&file, learned.to_string()).unwrap();
    let apply = |number: &str| sockets.attach(&[number, "apply", file.to_str().unwrap()]);
    let done = json!({"version": 1, "ok": {"models": [
        {"path": "m", "candidates": 2, "exchanged": 2, "layers_changed": 1, "layers": [[3, 2]], "hot_experts": 9},
        {"path": "n", "problem": "a reason"},
        {"path": "o", "pending": true},
    ]}});
    let request = sockets.process(82, done.to_string());
    let output = apply("82");
    let text = stdout(&output);
    for part in [
        "m: 2 of 2 experts copied in 1 layers; devices hold 9 copies",
        "n: a reason",
        "o: the experts will be copied before",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let request = request.join().unwrap();
    assert_eq!(
        (&request["command"], &request["learned"]["layers"][0]["layer"]),
        (&json!("apply"), &json!(3))
    );
    assert!(!request.to_string().contains("total_moe_time"), "{request}");

    fs::write(&file, "{}").unwrap();
    assert!(failure(&apply("82"), 1).contains("learned.json"));
    fs::remove_file(&file).unwrap();
    assert!(failure(&apply("82"), 1).contains("learned.json"));
}

#[test]
fn refusals_and_other_answers_are_one_line() {
    let sockets = Sockets::new();
    assert!(failure(&sockets.attach(&["stats"]), 1).contains("no process"));
    assert!(failure(&sockets.attach(&["/nothing.sock", "reload"]), 1).contains("/nothing.sock: "));
    assert!(failure(&sockets.attach(&["budget", "much"]), 2).contains("much"));
    for (answer, why) in [
        (json!({"version": 1, "error": "a reason"}).to_string(), "a reason"),
        (json!({"version": 1}).to_string(), "not a response"),
        ("hello".to_owned(), "not a response"),
        (json!({"version": 2, "ok": {}}).to_string(), "speaks version 2 of the protocol, expected 1"),
        (json!({"version": "x", "error": "a reason"}).to_string(), "speaks version \"x\""),
    ] {
        let request = sockets.process(79, answer);
        assert!(failure(&sockets.attach(&["79", "reload"]), 1).contains(why), "{why}");
        assert_eq!(request.join().unwrap()["command"], "reload");
        fs::remove_file(sockets.folder().join("79.sock")).unwrap();
    }
    let two = [sockets.process(80, String::new()), sockets.process(81, String::new())];
    let error = failure(&sockets.attach(&["top"]), 1);
    assert!(error.contains("80, 81"), "{error}");
    for (number, process) in [80, 81].into_iter().zip(two) {
        sockets.attach(&[&number.to_string()]);
        process.join().unwrap();
    }
}

/// In `/tmp`, anyone can make a folder with the name of another user's.
#[test]
fn sockets_in_folders_of_others_are_not_asked() {
    let sockets = Sockets::new();
    let process = sockets.process(83, json!({"version": 1, "ok": {"budget": 1, "models": []}}).to_string());
    fs::set_permissions(sockets.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    for words in [&["83", "budget", "1GiB"][..], &["budget", "1GiB"]] {
        let error = failure(&sockets.attach(words), 1);
        assert!(error.contains("other users can write to it"), "{error}");
    }
    // A relative folder for such files means nothing.
    let relative = terrace().args(["attach", "83"]).env("XDG_RUNTIME_DIR", "run").output().unwrap();
    assert!(failure(&relative, 1).contains("/tmp/terrace-"), "{}", stderr(&relative));
    fs::set_permissions(sockets.folder(), fs::Permissions::from_mode(0o700)).unwrap();
    stdout(&sockets.attach(&["83", "budget", "1GiB"]));
    process.join().unwrap();
}

/// Only the administrator can make a folder or a process of another user, and so this is checked for it alone.
#[test]
fn folders_and_processes_of_another_user_are_named() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let sockets = Sockets::new();
    let owner = |user| std::os::unix::fs::chown(sockets.folder(), Some(user), None).unwrap();
    owner(65534);
    let error = failure(&sockets.attach(&[]), 1);
    assert!(error.contains("belongs to user 65534, not to user 0"), "{error}");
}
