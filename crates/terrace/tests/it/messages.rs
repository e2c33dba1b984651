//! Messages that cannot be written, and those that nothing reads.

use crate::common::{bundled, failure, run, stdout, terrace};
use crate::server::Server;
use crate::wire::{self, Wire};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, PipeWriter, pipe};
use std::os::fd::AsRawFd;
use std::process::Stdio;

/// A disk without room.
fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A pipe whose reader has ended.
fn broken() -> PipeWriter {
    pipe().unwrap().1
}

#[test]
fn commands_work_without_a_place_for_their_messages() {
    let model = bundled();
    let model = model.to_str().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "In the beginning God created the heaven and the earth. ".repeat(40)).unwrap();
    let text = text.to_str().unwrap();
    let commands: [(&[&str], i32); 5] = [
        (&["run", model, "-p", "x", "-n", "3", "--temp", "0", "-v"], 0),
        (&["perplexity", model, "-f", text, "--ctx", "64", "--chunks", "2", "-v"], 0),
        (&["inspect", model, "-v"], 0),
        (&["run", "nowhere.gguf", "-p", "x"], 1),
        (&["run", "--no-such-option"], 2),
    ];
    for (command, code) in commands {
        let expected = run(command);
        assert_eq!(expected.status.code(), Some(code), "{command:?}: {expected:?}");
        for stderr in [Stdio::from(full()), Stdio::from(broken())] {
            let got = terrace().args(command).stderr(stderr).output().unwrap();
            assert_eq!(got.status, expected.status, "{command:?}");
            assert_eq!(stdout(&got), stdout(&expected), "{command:?}");
        }
    }
}

#[test]
fn a_full_disk_under_stdout_is_an_error() {
    let model = bundled();
    let commands: [&[&str]; 3] = [
        &["run", model.to_str().unwrap(), "-p", "x", "-n", "3"],
        &["inspect", model.to_str().unwrap()],
        &["--help"],
    ];
    for command in commands {
        let output = terrace().args(command).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let error = failure(&output, 1);
        assert!(error.contains("stdout"), "{command:?}: {error}");
    }
}

#[test]
fn a_server_whose_log_cannot_be_written_answers() {
    for stderr in [Stdio::from(full()), Stdio::from(broken())] {
        let args = ["--log-format", "json", "--ctx", "128"];
        let server = Server::start_with(&bundled(), args, |command| command.stderr(stderr));
        for _ in 0..3 {
            server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).ok();
        }
        server.wait_for(|server| server.metric("terrace_log_lines_dropped_total") >= 3.0);
        server.signal("-TERM");
        let (status, _) = server.ended();
        assert!(status.success(), "{status}");
    }
}

#[test]
fn a_log_that_nothing_reads_holds_nothing_up() {
    let mut server = Server::start(&bundled(), ["--log-format", "json", "--ctx", "128"]);
    let stderr = server.take_stderr();
    // SAFETY: the descriptor is open, and the call only changes how much the pipe holds.
    let size = unsafe { libc::fcntl(stderr.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(size, 4096, "the smallest that there is");
    let request = wire::get(&format!("/{}", "x".repeat(300)));
    let mut client = Wire::connect(&server);
    let mut sent = 0;
    while sent % 100 != 0 || sent == 0 || server.metric("terrace_log_lines_dropped_total") == 0.0 {
        client.send(&request).unwrap();
        assert_eq!(client.receive().unwrap().head.status, 404);
        sent += 1;
        assert!(sent < 100_000, "nothing was dropped");
    }
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).ok();
    let dropped = server.metric("terrace_log_lines_dropped_total");

    // Once something reads it, it says what is missing, and goes on.
    let mut lines = BufReader::new(stderr).lines().map(|line| {
        let line = line.unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    });
    let (mut said, mut of_requests) = (0.0, 0);
    let mut reader =
        lines.by_ref().inspect(|line| of_requests += u64::from(line["target"] == "terrace_server::request"));
    while said < dropped {
        let line = reader.next().expect("the number of lines that were dropped");
        said += line["dropped"].as_f64().unwrap_or_default();
    }
    drop(reader);
    // Each hundredth was followed by one for the metrics; the completion and one more came last.
    let all = sent + sent / 100 + 2;
    assert!(of_requests > 100 && of_requests < all, "{of_requests} of {all}");

    // Nothing reads again, though it could: that must not hold up the end.
    for _ in 0..100 {
        client.send(&request).unwrap();
        client.receive().unwrap();
    }
    server.signal("-TERM");
    let (status, _) = server.ended();
    assert!(status.success(), "{status}");
}
