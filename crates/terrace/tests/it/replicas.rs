//! `--replica`: copies of the model on other disks change no answer, and neither does losing one.

use crate::common::{bundled, failure, json, run, stderr, terrace};
use crate::server::Server;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

const PROMPT: &str = "In the beginning";
const STREAMED: [&str; 4] = ["--stream", "experts", "--ram-budget", "8MiB"];

/// Copies the bundled model to another directory, under its own name.
fn copy(dir: &Path) -> PathBuf {
    let path = dir.join(bundled().file_name().unwrap());
    fs::copy(bundled(), &path).unwrap();
    path
}

/// A short streamed run with these options.
fn streamed(more: &[&str]) -> Output {
    let mut command = terrace();
    command.args(["run", bundled().to_str().unwrap(), "-p", PROMPT, "-n", "12", "--temp", "0", "--json"]);
    command.args(STREAMED).args(more).output().unwrap()
}

fn golden() -> Value {
    json(&streamed(&[]))["tokens"].clone()
}

fn warnings(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("WARN") || line.starts_with("warning: ")).collect()
}

#[test]
fn replicas_are_read_too_and_change_no_answer() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (file, _) = (copy(one.path()), copy(other.path()));
    let golden = golden();
    // A file, and a directory.
    let named = ["--replica", file.to_str().unwrap(), "--replica", other.path().to_str().unwrap()];
    for engine in ["uring", "pread"] {
        let report = json(&streamed(&[&named[..], &["--io", engine]].concat()));
        assert_eq!(report["tokens"], golden, "{engine}");
        let copies = report["copies"].as_array().unwrap();
        assert!(copies.iter().map(|copy| copy["replica"].as_bool().unwrap()).eq([false, true, true]));
        assert_eq!(copies[1]["path"], file.to_str().unwrap());
        let read = |copy: &Value| copy["bytes_read"].as_u64().unwrap();
        assert!(copies.iter().all(|copy| read(copy) > 0 && copy["used"] == true && copy["errors"] == 0));
        assert_eq!(copies.iter().map(read).sum::<u64>(), report["store"]["bytes_read"]);
        let shares: f64 = copies.iter().map(|copy| copy["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{copies:?}");
    }
    // Without `--stream`, too: what would be mapped is read from all disks.
    let mut whole = terrace();
    whole
        .args(["run", bundled().to_str().unwrap(), "-p", PROMPT, "-n", "12", "--temp", "0", "-v"])
        .args(named);
    let output = whole.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("2 replicas"), "{}", stderr(&output));
    assert_eq!(json(&streamed(&["-v"])).get("copies"), None);
}

#[test]
fn what_is_not_a_copy_is_refused_before_anything_is_loaded() {
    let dir = TempDir::new().unwrap();
    let file = copy(dir.path());
    let refused = |named: &Path, says: &str| {
        let error = failure(&streamed(&["--replica", named.to_str().unwrap()]), 1);
        assert!(error.contains(says), "{error}");
    };
    refused(&dir.path().join("none.gguf"), "cannot read replica");
    refused(&bundled(), "is the model's own file");
    refused(bundled().parent().unwrap(), "is the model's own file");
    let empty = TempDir::new().unwrap();
    refused(empty.path(), "has none of the model's files; the first one is called tiny-moe-Q4_K.gguf");
    // One byte too short; another byte in the header.
    let len = fs::metadata(&file).unwrap().len();
    OpenOptions::new().write(true).open(&file).unwrap().set_len(len - 1).unwrap();
    refused(&file, &format!("it has {} bytes, not {len}", len - 1));
    let mut bytes = fs::read(bundled()).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    refused(&file, "byte 100 of its header differs");
    refused(dir.path(), "byte 100 of its header differs");
    let model = bundled();
    let plan = ["plan", model.to_str().unwrap(), "--replica", file.to_str().unwrap()];
    assert!(failure(&run(plan), 1).contains("byte 100 of its header differs"));

    // Options that would make it do nothing.
    copy(dir.path());
    let mapped = ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "1", "--mmap=on", "--replica"];
    let error = failure(&run(mapped.iter().chain(&[file.to_str().unwrap()])), 1);
    assert!(error.contains("reading replicas, too, has no effect"), "{error}");
}

#[test]
fn a_replica_that_fails_in_the_middle_costs_a_warning_and_no_token() {
    let dir = TempDir::new().unwrap();
    let file = copy(dir.path());
    let golden = golden();
    for (fault, says) in [
        ("eio@copy:1:60..", "is no longer used"),
        ("eof@copy:1:60..", "it was cut off"),
        ("eio@copy:0:60..", "its replicas are read instead"),
    ] {
        let output = streamed(&["--replica", file.to_str().unwrap(), "--inject-fault", fault]);
        let report = json(&output);
        assert_eq!(report["tokens"], golden, "{fault}");
        let text = stderr(&output);
        let warnings = warnings(&text);
        assert!(warnings.len() == 1 && warnings[0].contains(says), "{fault}: {warnings:?}");
        let failed = usize::from(fault.contains("copy:1"));
        let used: Vec<bool> =
            report["copies"].as_array().unwrap().iter().map(|copy| copy["used"] == true).collect();
        assert_eq!(used, [failed == 1, failed == 0], "{fault}: {}", report["copies"]);
    }
    // Both: today's error, about the model's file.
    let error = failure(&streamed(&["--replica", file.to_str().unwrap(), "--inject-fault", "eio@400.."]), 1);
    assert!(error.contains("Input/output error") && error.contains(bundled().to_str().unwrap()), "{error}");
}

/// The replica of a server is cut off between two requests.
#[test]
fn a_server_goes_on_without_a_replica_that_is_truncated() {
    let dir = TempDir::new().unwrap();
    let file = copy(dir.path());
    let replica = ["--replica", file.to_str().unwrap(), "--ctx", "256"];
    let server = Server::start(&bundled(), STREAMED.iter().chain(&replica));
    let body = json!({"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "cache_prompt": false});
    let text = || server.post("/v1/completions", &body).ok()["choices"][0]["text"].clone();
    let golden = text();
    let metric = |name: &str, path: &Path| {
        let line = format!("terrace_{name}{{file=\"{}\"}} ", path.display());
        let metrics = server.get("/metrics").text;
        let value = metrics.lines().find_map(|other| other.strip_prefix(&line)).map(str::to_owned);
        value.unwrap_or_else(|| panic!("{line}: {metrics}")).parse::<f64>().unwrap()
    };
    assert_eq!([metric("copy_used", &bundled()), metric("copy_used", &file)], [1.0, 1.0]);
    OpenOptions::new().write(true).open(&file).unwrap().set_len(4096).unwrap();
    // The experts of one answer need not be read again for the same one.
    let other = json!({"prompt": "And God said unto Noah", "max_tokens": 24, "temperature": 0});
    server.post("/v1/completions", &other).ok();
    assert_eq!(text(), golden);
    server.wait_for(|_| metric("copy_used", &file) == 0.0);
    assert!(metric("copy_errors_total", &file) > 0.0 && metric("copy_used", &bundled()) == 1.0);
    server.signal("-TERM");
    let (_, log) = server.ended();
    let told: Vec<_> = log.lines().filter(|line| line.contains("replica ")).collect();
    assert!(told.len() == 1 && told[0].contains("it was cut off"), "{log}");
}

/// Checksums are of the original, and tell a replica that has other bytes behind the same header.
#[test]
fn verified_runs_find_a_replica_with_other_bytes() {
    let (dir, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = copy(dir.path());
    let mut bytes = fs::read(&file).unwrap();
    let from = bytes.len() / 4;
    bytes[from..].iter_mut().for_each(|byte| *byte ^= 0x40);
    fs::write(&file, bytes).unwrap();
    let mut command = terrace();
    command.env("XDG_CACHE_HOME", cache.path());
    command.args(["run", bundled().to_str().unwrap(), "-p", PROMPT, "-n", "12", "--temp", "0", "--json"]);
    command.args(STREAMED).args(["--verify", "--replica", file.to_str().unwrap()]);
    let output = command.output().unwrap();
    let report = json(&output);
    assert_eq!(report["tokens"], golden());
    assert_eq!(report["copies"][1]["used"], false, "{}", report["copies"]);
    let text = stderr(&output);
    let warnings: Vec<_> = warnings(&text).into_iter().filter(|line| line.contains("replica ")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("has other bytes there"), "{text}");
}
