//! `terrace run --watch`: the running program reloads tensors that change on disk.

use crate::common::{failure, json, run, stderr, terrace};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use terrace_testkit::{Arch, Spec, WeightType};

const TENSOR: &str = "blk.1.ffn_up_exps.weight";

struct Fixture {
    dir: tempfile::TempDir,
    model: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let model =
            terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
        Self { dir, model }
    }

    fn donor(&self, name: &str, ty: WeightType) -> PathBuf {
        let mut spec = Spec::new(Arch::Qwen3Moe);
        spec.overrides.push((TENSOR.into(), ty));
        terrace_testkit::write(&spec, self.dir.path().join(name)).unwrap()
    }
}

/// A running `terrace run --watch`, with its lines of stderr.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a run with a context that takes minutes to fill.
    fn start(model: &Path, more: &[&str]) -> Self {
        let mut child = terrace()
            .arg("run")
            .arg(model)
            .args(["-p", "The water", "--watch", "--ctx", "32768", "--threads", "1", "--temp", "0"])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
        let mut this = Self { child, lines };
        this.expect("context"); // The plan's line: it is loaded.
        this
    }

    /// Waits for a line that contains this text.
    fn expect(&mut self, text: &str) -> String {
        let until = Instant::now() + Duration::from_secs(300);
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with `{text}` in {seen:?}; {:?}", self.child.try_wait());
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn files_that_are_renamed_into_place_or_overwritten_are_taken_over() {
    let scene = Fixture::new();
    let (q8, q6) = (scene.donor("q8.gguf", WeightType::Q8_0), scene.donor("q6.gguf", WeightType::Q6_K));
    let mut running = Running::start(&scene.model, &["--ram-budget", "4MiB", "--stream", "experts"]);
    fs::rename(&q8, &scene.model).unwrap();
    let line = running.expect("reloaded");
    assert!(line.contains(TENSOR) && line.contains("q4_K -> q8_0"), "{line}");
    running.expect("epoch 1");
    fs::write(&scene.model, fs::read(&q6).unwrap()).unwrap();
    let line = running.expect(&format!("reloaded {TENSOR}"));
    assert!(line.contains("q8_0 -> q6_K"), "{line}");
    // A refused reload is reported, and the program continues.
    let bytes = fs::read(&q6).unwrap();
    fs::write(scene.dir.path().join("cut"), &bytes[..bytes.len() / 2]).unwrap();
    fs::rename(scene.dir.path().join("cut"), &scene.model).unwrap();
    let line = running.expect("warning: nothing was reloaded");
    assert!(line.contains("model.gguf"), "{line}");
    assert!(running.child.try_wait().unwrap().is_none());
    // It is reported once, not whenever the file is looked at.
    std::thread::sleep(Duration::from_millis(1500));
    fs::rename(scene.donor("q5.gguf", WeightType::Q5_K), &scene.model).unwrap();
    let line = running.expect("reloaded");
    assert!(line.starts_with("reloaded"), "{line}");
}

#[test]
fn a_signal_makes_it_look() {
    let scene = Fixture::new();
    let mut running = Running::start(&scene.model, &["--stream", "none"]);
    // It is handled from before the load, so the program does not end.
    running.signal("-HUP");
    let q8 = scene.donor("q8.gguf", WeightType::Q8_0);
    fs::rename(&q8, &scene.model).unwrap();
    running.signal("-HUP");
    running.expect(&format!("reloaded {TENSOR}"));
    assert!(running.child.try_wait().unwrap().is_none(), "it goes on");
}

#[test]
fn the_report_says_how_often_tensors_were_replaced() {
    let scene = Fixture::new();
    let model = scene.model.to_str().unwrap();
    let report = json(&run(["run", model, "-p", "a", "-n", "2", "--watch", "--on-reload", "keep", "--json"]));
    assert_eq!(report["epochs"], serde_json::json!([0, 0]));
    let error = failure(&run(["run", model, "-p", "a", "--on-reload", "keep"]), 2);
    assert!(error.contains("--watch"), "{error}");
    let output = run(["run", model, "-p", "a", "--watch", "--manage", "mapped"]);
    failure(&output, 1);
    assert!(stderr(&output).contains("--watch"), "{}", stderr(&output));
}
