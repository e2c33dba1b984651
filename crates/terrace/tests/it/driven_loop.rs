//! `terrace perplexity` driven by two files, as a benchmark of single tensors drives ik_llama.cpp's
//! llama-perplexity.

use crate::common::{bundled, failure, json, run, stderr, terrace};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, WeightType};

const TENSOR: &str = "blk.1.ffn_down_exps.weight";
const TEXT: &str = "In the beginning God created the heaven and the earth. ";

/// A process that waits for commands, with everything that it prints in one file.
struct Driven {
    child: Child,
    dir: PathBuf,
}

impl Driven {
    fn start(dir: &Path, mut command: Command) -> Self {
        let log = File::create(dir.join("log")).unwrap();
        let child = command
            .current_dir(dir)
            .env("LLAMA_HOTSWAP_ENABLED", "1")
            .env("LLAMA_HOTSWAP_CONTROL_FILE", "control")
            .env("LLAMA_HOTSWAP_STATUS_FILE", "status")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, dir: dir.to_owned() }
    }

    fn status(&self) -> String {
        fs::read_to_string(self.dir.join("status")).unwrap_or_default()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap()
    }

    #[track_caller]
    fn wait_for(&mut self, status: &str) {
        let begin = Instant::now();
        while self.status() != format!("{status}\n") {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.log());
            let waited = begin.elapsed();
            assert!(waited < Duration::from_secs(120), "{status}, not {}: {}", self.status(), self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// Writes a command as drivers do: under another name first.
    fn send(&self, command: &str) {
        fs::write(self.dir.join("control.new"), command).unwrap();
        fs::rename(self.dir.join("control.new"), self.dir.join("control")).unwrap();
    }

    #[track_caller]
    fn wait_until_taken(&self) {
        let begin = Instant::now();
        while self.dir.join("control").exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// Sends a command, waits for this state, and returns what was printed meanwhile.
    #[track_caller]
    fn after(&mut self, command: &str, status: &str) -> String {
        let from = self.log().len();
        self.send(command);
        self.wait_for(status);
        self.log()[from..].to_owned()
    }

    /// Ends the process by a command, and checks that it ends well.
    #[track_caller]
    fn exit(mut self, command: &str, status: &str) {
        self.send(command);
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}: {}", self.log());
        assert_eq!(self.status(), format!("{status}\n"));
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(model: &Path, text: &Path) -> Command {
    let mut command = terrace();
    command.arg("perplexity").arg(model).arg("-f").arg(text).args(["--ctx", "64", "--chunks", "2"]);
    command
}

/// A model, a donor for one of its tensors, and a text.
fn scene() -> (TempDir, PathBuf, PathBuf) {
    let dir = TempDir::new().unwrap();
    let mut spec = Spec::new(Arch::Qwen3Moe);
    let model = terrace_testkit::write(&spec, dir.path().join("model.gguf")).unwrap();
    spec.overrides.insert(0, (TENSOR.into(), WeightType::Q8_0));
    terrace_testkit::write(&spec, dir.path().join("donor.gguf")).unwrap();
    let text = dir.path().join("text.txt");
    fs::write(&text, TEXT.repeat(40)).unwrap();
    (dir, model, text)
}

/// Lets the donor take the model's place.
fn swap_in_donor(dir: &Path) {
    fs::copy(dir.join("donor.gguf"), dir.join("new")).unwrap();
    fs::rename(dir.join("model.gguf"), dir.join("model.bak")).unwrap();
    fs::rename(dir.join("new"), dir.join("model.gguf")).unwrap();
}

fn final_line(report: &Value) -> String {
    let number = |key: &str| report[key].as_f64().unwrap();
    format!("Final estimate: PPL = {:.4} +/- {:.5}", number("perplexity"), number("error"))
}

#[test]
fn commands_are_taken_in_order_and_states_tell_their_ends() {
    let (dir, model, text) = scene();
    let figure = |model: &Path| json(&measure(model, &text).arg("--json").output().unwrap());
    let (alone, donor) = (figure(&model), figure(&dir.path().join("donor.gguf")));
    assert_ne!(final_line(&alone), final_line(&donor));
    // What an earlier process left is no command.
    fs::write(dir.path().join("control"), "exit 9\n").unwrap();
    let mut driven = Driven::start(dir.path(), measure(&model, &text));
    driven.wait_for("done 1 0");
    let log = driven.log();
    let running = &alone["running"];
    let values = [running[0].as_f64().unwrap(), running[1].as_f64().unwrap()];
    let line = format!("[1]{:.4},[2]{:.4},", values[0], values[1]);
    assert!(log.lines().any(|printed| printed == line), "{line}: {log}");
    assert!(log.lines().any(|printed| printed == final_line(&alone)), "{log}");
    assert!(log.contains("perplexity: calculating perplexity over 2 chunks, n_ctx=64, "), "{log}");

    let printed = driven.after("reload 1\n", "reload_failed 1 1");
    assert!(printed.contains("no tensor has changed"), "{printed}");
    swap_in_donor(dir.path());
    // Without its end, a line may be a part of one.
    driven.send("reload 2");
    sleep(Duration::from_millis(400));
    assert_eq!(driven.status(), "reload_failed 1 1\n");
    assert!(dir.path().join("control").exists());
    let printed = driven.after("reload 2\n", "done 2 2");
    assert!(printed.contains(&format!("reloaded tensor '{TENSOR}'")), "{printed}");
    assert!(printed.contains(&final_line(&donor)), "{printed}");

    // Delivered twice.
    driven.send("reload 2\n");
    driven.wait_until_taken();
    driven.send("jump 3\n");
    driven.wait_until_taken();
    assert_eq!(driven.status(), "done 2 2\n");
    // The number of the unknown command counts, and one without a number is always taken.
    let printed = driven.after("compute\n", "done 3 3");
    assert!(printed.contains(&final_line(&donor)), "{printed}");
    assert!(!printed.contains("reloaded tensor"), "{printed}");

    fs::rename(dir.path().join("model.bak"), dir.path().join("model.gguf")).unwrap();
    let printed = driven.after("reload 4\n", "done 4 4");
    assert!(printed.contains(&format!("reloaded tensor '{TENSOR}'")), "{printed}");
    assert!(printed.contains(&final_line(&alone)), "{printed}");
    driven.exit("quit 5\n", "exiting 4 5");
    assert!(!dir.path().join("status.tmp").exists());
}

#[test]
fn the_base_is_read_again_and_tasks_are_solved_again() {
    let (dir, model, text) = scene();
    let base = dir.path().join("base.kld");
    let save = |model: &Path| {
        // Enough tokens for statistics.
        let mut command = terrace();
        command.arg("perplexity").arg(model).arg("-f").arg(&text).args(["--ctx", "64", "--chunks", "4"]);
        let output = command.arg("--save-logits").arg(&base).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    };
    save(&model);
    let mut command = terrace();
    command.args(["perplexity", "-m", "model.gguf", "-f", "text.txt", "-c", "64"]);
    command.args(["--kl-divergence-base", "base.kld", "--kl-divergence"]);
    let mut driven = Driven::start(dir.path(), command);
    driven.wait_for("done 1 0");
    let kld = |log: &str| -> f64 {
        assert!(log.contains("====== KL divergence statistics ======"), "{log}");
        let line = log.lines().find(|line| line.starts_with("Mean    KLD:")).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    assert!(kld(&driven.log()).abs() < 1e-5);
    swap_in_donor(dir.path());
    let of_donor = kld(&driven.after("reload 1\n", "done 2 1"));
    assert!(of_donor > 1e-5, "{of_donor}");
    // The base of the donor, with which nothing differs.
    save(&dir.path().join("donor.gguf"));
    assert!(kld(&driven.after("compute 2\n", "done 3 2")).abs() < 1e-5);
    // What cannot be measured is said, and does not end the process.
    fs::rename(&base, dir.path().join("gone")).unwrap();
    let printed = driven.after("compute 3\n", "done 4 3");
    assert!(printed.contains("error: ") && printed.contains("base.kld"), "{printed}");
    assert!(!printed.contains("Mean    KLD:"), "{printed}");
    fs::rename(dir.path().join("gone"), &base).unwrap();
    assert!(kld(&driven.after("compute 4\n", "done 5 4")).abs() < 1e-5);
    driven.exit("stop\n", "exiting 5 4");

    let tasks = dir.path().join("tasks.txt");
    fs::write(&tasks, "In the beginning\n0\nGod created\nof the\nearth was\nand void\n".repeat(3)).unwrap();
    fs::rename(dir.path().join("model.bak"), dir.path().join("model.gguf")).unwrap();
    let mut command = terrace();
    command.args(["perplexity", "model.gguf", "--hellaswag", "-f", "tasks.txt"]);
    let mut driven = Driven::start(dir.path(), command);
    driven.wait_for("done 1 0");
    swap_in_donor(dir.path());
    let printed = driven.after("reload 1\n", "done 2 1");
    assert!(printed.contains("task\tacc_norm\t"), "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with("3\t")).count(), 1, "{printed}");
    driven.exit("exit 2\n", "exiting 2 2");
}

#[test]
fn a_control_file_needs_a_status_file_and_a_loop() {
    let (_dir, model, text) = scene();
    let with =
        |variables: &[(&str, &str)]| measure(&model, &text).envs(variables.iter().copied()).output().unwrap();
    let control = ("LLAMA_HOTSWAP_CONTROL_FILE", "c");
    let error = failure(&with(&[("LLAMA_HOTSWAP_ENABLED", "1"), control]), 2);
    assert!(error.contains("LLAMA_HOTSWAP_STATUS_FILE"), "{error}");
    let alone = with(&[control, ("LLAMA_HOTSWAP_STATUS_FILE", "s")]);
    assert!(alone.status.success());
    assert!(stderr(&alone).contains("LLAMA_HOTSWAP_CONTROL_FILE has no effect"), "{}", stderr(&alone));
}

/// The bundled model as one tensor per file, in the types of `more`.
fn split(folder: &Path, more: &[&str]) {
    fs::create_dir(folder).unwrap();
    let (model, out) = (bundled(), folder.join("m"));
    let args = ["quantize", model.to_str().unwrap(), out.to_str().unwrap(), "--split-tensors"];
    let output = run(args.iter().chain(more));
    assert!(output.status.success(), "{}", stderr(&output));
}

/// The file of a tensor.
fn shard(folder: &Path, tensor: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let holds = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "gguf")
            && terrace_ggml::gguf::read_one(path).is_ok_and(|file| file.tensor(tensor).is_some())
    };
    files.into_iter().find(holds).unwrap_or_else(|| panic!("no file has {tensor}"))
}

/// Puts a copy of `from` in place of `to`, as drivers do.
fn put(from: &Path, to: &Path) {
    let new = to.with_extension("new");
    fs::copy(from, &new).unwrap();
    fs::rename(new, to).unwrap();
}

#[test]
fn a_bad_file_is_refused_by_name_and_the_others_are_taken() {
    let dir = TempDir::new().unwrap();
    let (own, donors, kept) = (dir.path().join("own"), dir.path().join("donors"), dir.path().join("kept"));
    split(&own, &[]);
    split(&kept, &["--type", "COPY"]);
    split(&donors, &["--type", "Q2_K", "--pure", "--allow-requantize"]);
    let [up, down, gate] = ["up", "down", "gate"].map(|role| format!("blk.0.ffn_{role}_exps.weight"));
    let first = fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path());
    let first = first.into_iter().find(|path| path.to_string_lossy().contains("-00001-of-")).unwrap();
    let text = bundled().with_file_name("sample.kjv.txt");
    let mut driven = Driven::start(dir.path(), measure(&first, &text));
    driven.wait_for("done 1 0");
    let alone = estimate(&driven.log());

    let (of_up, of_down, of_gate) = (shard(&own, &up), shard(&own, &down), shard(&own, &gate));
    // Another tensor's file, no model at all, no file; and a good one.
    put(&shard(&donors, &down), &of_up);
    fs::write(of_gate.with_extension("new"), "no model").unwrap();
    fs::rename(of_gate.with_extension("new"), &of_gate).unwrap();
    let missing = shard(&own, "blk.1.ffn_up_exps.weight");
    fs::remove_file(&missing).unwrap();
    put(&shard(&donors, &down), &of_down);
    let printed = driven.after("reload 1\n", "done 2 1");
    for (tensor, reason) in [
        (up.as_str(), "no longer in the file"),
        (gate.as_str(), "GGUF"),
        ("blk.1.ffn_up_exps.weight", "cannot find its file"),
    ] {
        let line = format!("hotswap: tensor '{tensor}' cannot be hot-swapped: ");
        let line = printed.lines().find(|printed| printed.starts_with(&line));
        assert!(line.is_some_and(|line| line.contains(reason)), "{tensor}: {printed}");
        assert!(!printed.contains(&format!("reloaded tensor '{tensor}'")), "{printed}");
    }
    assert!(printed.contains(&format!("reloaded tensor '{down}'")), "{printed}");
    assert_ne!(estimate(&printed), alone);

    // All return, also those that were never replaced.
    for (tensor, path) in [(&up, &of_up), (&down, &of_down), (&gate, &of_gate)] {
        put(&shard(&kept, tensor), path);
    }
    put(&shard(&kept, "blk.1.ffn_up_exps.weight"), &missing);
    let printed = driven.after("reload 2\n", "done 3 2");
    for tensor in [&up, &down, &gate] {
        assert!(printed.contains(&format!("reloaded tensor '{tensor}'")), "{tensor}: {printed}");
    }
    assert!(!printed.contains("cannot be hot-swapped"), "{printed}");
    assert_eq!(estimate(&printed), alone);
    driven.exit("exit 3\n", "exiting 3 3");
}

/// The last line of a measurement.
fn estimate(log: &str) -> String {
    let mut lines = log.lines().rev();
    let last = lines.find(|line| line.starts_with("Final estimate: PPL = "));
    last.unwrap_or_else(|| panic!("no estimate: {log}")).to_owned()
}
