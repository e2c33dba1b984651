//! The RAM budget adapts to free memory.

use crate::common;
use crate::common::{bundled, failure, json, run, stderr, terrace};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;
use terrace_testkit::Spec;
use terrace_testkit::big::{self, Data, Preset};

const PROMPT: &str = "And it came to pass in those days, that there went out a decree";

/// Runs the bundled model, all of whose experts would fit, with simulated readings of memory, if
/// any.
fn generate(readings: Option<&str>, more: &[&str]) -> Output {
    let dir = TempDir::new().unwrap();
    let mut command = terrace();
    command.args(["run", bundled().to_str().unwrap(), "-p", PROMPT, "-n", "1500", "--temp", "0", "--json"]);
    command.args(["--stream", "experts", "--ctx", "2048", "--available-memory", "8GiB"]).args(more);
    if let Some(readings) = readings {
        let path = dir.path().join("readings");
        fs::write(&path, readings).unwrap();
        command.arg("--simulated-memory").arg(path);
    }
    command.output().unwrap()
}

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Another program takes memory in two steps, and gives it back.
#[test]
fn a_run_shrinks_and_grows_and_says_the_same() {
    let plain = json(&generate(None, &["--adapt", "off"]));
    let budget = bytes(&plain["plan"]["placement"]["budget"]);
    let store = &plain["store"];
    assert_eq!((&store["adapts"], bytes(&store["shrinks"])), (&false.into(), 0));
    assert_eq!(bytes(&store["budget_now"]), budget);

    // 8 MiB are left to other programs. Memory is taken only once most slots are in use.
    let output = generate(Some("8MiB\n64MiB until 14MiB\n20MiB\n10MiB\n64MiB\n"), &["-v"]);
    let adapted = json(&output);
    assert_eq!(adapted["tokens"], plain["tokens"]);
    let store = &adapted["store"];
    assert_eq!((&store["adapts"], bytes(&store["shrinks"])), (&true.into(), 2), "{}", stderr(&output));
    assert!(bytes(&store["grows"]) >= 1 && bytes(&store["evictions"]) > 0, "{store}");
    assert!(bytes(&store["misses"]) > bytes(&plain["store"]["misses"]), "what was given up is read again");
    let text = stderr(&output);
    for (line, times) in [
        ("memory is short: ", 1),
        ("slots grow from ", 1),
        ("budget: ", 1),
        ("slots follow free memory: ", 1),
    ] {
        assert_eq!(text.matches(line).count(), times, "{line}: {text}");
    }
}

/// Without `-v` there is one line, and the budget never falls below what the model needs.
#[test]
fn slots_never_shrink_below_what_is_needed() {
    let plain = json(&generate(None, &["--adapt", "off"]));
    let output = generate(Some("8MiB\n600MiB\n0MiB\n"), &[]);
    let adapted = json(&output);
    assert_eq!(adapted["tokens"], plain["tokens"]);
    let plan = &adapted["plan"]["placement"];
    let (now, minimum) = (bytes(&adapted["store"]["budget_now"]), bytes(&plan["minimum"]));
    assert!(now >= minimum && now < bytes(&plan["budget"]), "{now} of {plan}");
    let text = stderr(&output);
    // One more says that the model knows no contexts of this length.
    let lines = text.lines().filter(|line| !line.contains("was trained with"));
    assert_eq!(lines.count(), 2, "{text}");
    assert!(text.contains("slots shrink from ") && text.contains("the minimum for this model"), "{text}");
}

#[test]
fn stalls_shrink_where_little_is_left() {
    let adapted = json(&generate(Some("8MiB\n30MiB\n30MiB pressed\n30MiB\n"), &[]));
    assert_eq!(bytes(&adapted["store"]["shrinks"]), 1);
    let elsewhere = json(&generate(Some("8MiB\n9GiB pressed\n"), &[]));
    assert_eq!(bytes(&elsewhere["store"]["shrinks"]), 0);
}

/// A given budget stays unless `--adapt on`; without streaming there are no slots to shrink.
#[test]
fn budgets_that_were_given_stay() {
    let scarce = "8MiB\n9MiB\n";
    for (options, adapts) in [
        (&["--ram-budget", "12MiB"][..], false),
        (&["--ram-budget", "12MiB", "--adapt", "on"], true),
        (&["--adapt", "off"], false),
        (&["--adapt", "auto"], true),
        (&["--stream", "none"], false),
        (&["--mmap"], false),
    ] {
        let mut command = terrace();
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("readings");
        fs::write(&path, scarce).unwrap();
        command.args(["run", bundled().to_str().unwrap(), "-p", PROMPT, "-n", "32", "--temp", "0", "--json"]);
        command.arg("--simulated-memory").arg(path).args(options);
        if !options.iter().any(|option| ["--stream", "--mmap"].contains(option)) {
            command.args(["--stream", "experts"]);
        }
        let report = json(&command.output().unwrap());
        assert_eq!(report["store"]["adapts"], adapts, "{options:?}");
        assert_eq!(bytes(&report["store"]["shrinks"]) > 0, adapts, "{options:?}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let line = failure(&run(["run", "x.gguf", "-p", "a", "--adapt", "maybe"]), 2);
    assert!(line.contains("maybe") && line.contains("auto, on, off"), "{line}");
    let line = failure(&generate(Some("plenty\n"), &[]), 1);
    assert!(line.contains("readings") && line.contains("line 1"), "{line}");
}

/// A process that ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Resident memory in bytes.
    fn rss(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.unwrap_or(0) << 10
    }

    /// Waits until `done` returns true for the resident bytes, for some minutes at most.
    fn until(&mut self, what: &str, done: impl Fn(u64) -> bool) {
        for _ in 0..1200 {
            if done(self.rss()) {
                return;
            }
            assert!(self.0.try_wait().unwrap().is_none(), "the run ended before {what}");
            sleep(Duration::from_millis(100));
        }
        panic!("{what}: never, {} MiB", self.rss() >> 20);
    }
}

/// A control group with a limit in bytes. If there cannot be one, `None` and a line with the
/// reason.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
        let (root, file) = if v1 {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            ("/sys/fs/cgroup", "memory.max")
        };
        let group = Path::new(root).join(format!("terrace-test-{}", std::process::id()));
        let made = fs::create_dir(&group).map(|()| Self(group.clone())).and_then(|made| {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).open(group.join(file))?;
            file.write_all(limit.to_string().as_bytes())?;
            Ok(made)
        });
        made.inspect_err(|error| eprintln!("skipped: {}: {error}", group.display())).ok()
    }

    /// A command that runs within the group.
    fn command(&self, program: &str) -> Command {
        let mut command = common::command(Path::new("/bin/sh"));
        command
            .args(["-c", r#"echo $$ > "$0/cgroup.procs" || exit 125; exec "$@""#])
            .arg(&self.0)
            .arg(program);
        command
    }

    /// Takes this many bytes until it is dropped: the process must read all its input, and nothing
    /// reads its output.
    fn hog(&self, bytes: u64) -> Running {
        let mut command = self.command("/bin/sh");
        command.args(["-c", &format!("head -c {bytes} /dev/zero | tail -c {bytes}")]);
        Running(command.stdout(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }
}

const MIB: u64 = 1 << 20;

/// About 700 MB of experts, 1.4 MB each.
fn model(dir: &Path) -> PathBuf {
    let spec = Spec {
        layers: 8,
        embd: 1024,
        heads: 8,
        kv_heads: 1,
        ff: 1024,
        expert_ff: 768,
        experts: 64,
        vocab: 4000,
        ..Preset::Qwen3_30bA3b.spec()
    };
    big::write(&spec, dir.join("model.gguf"), Data::Pooled).unwrap()
}

/// Other processes in the control group take more memory than a run would leave them without
/// shrinking.
#[test]
fn a_run_in_a_full_group_shrinks_and_survives() {
    let Some(group) = Group::new(1024 * MIB) else { return };
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = model(dir.path());
    let model = model.to_str().unwrap();
    // Small graphs, so that most memory is for slots.
    let arguments = |n: &'static str| {
        ["run", model, "-p", PROMPT, "--temp", "0", "--ctx", "16384", "--ubatch", "128", "-n", n]
    };

    // Without the group, the model would be mapped: the group's limit makes it stream.
    let plain = run(arguments("200").into_iter().chain(["--json"]));
    let plain = json(&plain);
    let binary = env!("CARGO_BIN_EXE_terrace");
    let output = group.command(binary).args(arguments("1")).arg("--json").output().unwrap();
    let limited = json(&output);
    let placement = &limited["plan"]["placement"];
    let budget = bytes(&placement["budget"]);
    assert!(budget < 512 * MIB, "auto leaves 512 MiB of 1 GiB: {placement}");
    if plain["mode"] == "mapped" {
        assert!(limited["mode"].as_str().unwrap().ends_with("-streaming"), "{}", limited["mode"]);
    }

    let mut command = group.command(binary);
    command.args(arguments("15000")).arg("-v").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let (mut out, mut err) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
    let read = |pipe: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(|| read(&mut out));
        let err = scope.spawn(|| read(&mut err));
        let slots = bytes(&placement["slots"]);
        child.until("its slots were filled", |rss| rss > slots);
        let full = child.rss();
        let mut hogs = vec![group.hog(200 * MIB), group.hog(200 * MIB)];
        child.until("it became smaller", |rss| rss + 100 * MIB < full);
        hogs.push(group.hog(250 * MIB));
        child.until("it became smaller again", |rss| rss + 250 * MIB < full);
        let small = child.rss();
        hogs.clear();
        child.until("it grew again", |rss| rss > small + 50 * MIB);
        Command::new("kill").args(["-INT", &child.0.id().to_string()]).status().unwrap();
        let status = child.0.wait().unwrap();
        let (out, err) = (out.join().unwrap(), err.join().unwrap());
        assert_eq!(status.code(), Some(130), "{err}");
        let plain = plain["text"].as_str().unwrap();
        let same = out.bytes().zip(plain.bytes()).take_while(|(a, b)| a == b).count();
        // The last character may be incomplete.
        assert!(
            same + 4 > plain.len().min(out.len()) && same > 100,
            "{same} bytes of {} are equal",
            plain.len()
        );
        for line in ["memory is short: ", "slots grow from ", "budget: "] {
            assert_eq!(err.matches(line).count(), 1, "{line}: {err}");
        }
    });
}
