//! Starts the real binary, isolated from this machine's settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use terrace_ggml::quantize::WeightType;
use terrace_host::machine::{Hardware, StoredProfile};
use terrace_plan::MachineProfile;
use terrace_plan::machine::{MatmulRate, ThreadBandwidth};
use terrace_test_env as _;

/// The trained model that comes with the project.
pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf").canonicalize().unwrap()
}

/// A command that sees none of the user's files. This process has none of the user's variables
/// either.
pub fn terrace() -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_terrace")))
}

pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    // Earlier runs of the user may have saved something.
    command.env("HOME", home());
    // One thread unless a test sets another number: ggml's threads spin, and another test computes
    // on the other core.
    command
        .env("TERRACE_THREADS", "1")
        .env("TERRACE_WARM_START", "off")
        // Parts of prompts do not depend on how busy this machine is.
        .env("TERRACE_PREFILL_LATENCY", "off")
        // Plans do not depend on how busy this machine is.
        .env("TERRACE_RPC_PROBE", "off")
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null());
    command
}

/// A home directory of this process. It contains only the description of a machine with fixed
/// rates, so that no plan depends on how fast a probe finds this machine.
fn home() -> &'static Path {
    static HOME: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    HOME.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("home-{}", std::process::id()));
        // Left by an earlier process with the same number.
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).unwrap();
        let profile = StoredProfile::new(known_machine());
        profile.write(&home.join(".config/terrace/profile.json")).unwrap();
        home
    })
}

/// The rates of a laptop, under this machine's name.
fn known_machine() -> MachineProfile {
    let Hardware { cores, memory, .. } = Hardware::here();
    let mut machine = MachineProfile::unmeasured("the tests' machine", cores, memory, memory);
    machine.memory.bandwidth.push(ThreadBandwidth { threads: cores, bytes_per_s: 30e9 });
    machine.cpu.layer_overhead_s = Some(2e-5);
    for ty in WeightType::ALL {
        let rate =
            MatmulRate { decode_bytes_per_s: Some(10e9), prefill_flops: Some(1e11), ..Default::default() };
        machine.cpu.matmul.insert(ty.name().into(), rate);
    }
    machine
}

/// Runs the program with these arguments, to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    terrace().args(args).output().unwrap()
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON object on stdout of a successful run.
pub fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that the program failed as it should - an exit code, nothing on stdout, one error line,
/// at most one hint and no trace of a crash - and returns the error line.
#[track_caller]
pub fn failure(output: &Output, code: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{:?}: {text}", output.status);
    assert!(output.stdout.is_empty(), "stdout: {}", stdout(output));
    error_line(&text)
}

/// The one error line in the text on stderr.
#[track_caller]
pub fn error_line(text: &str) -> String {
    assert!(!text.contains("panicked") && !text.contains("internal:"), "{text}");
    let count = |start: &str| text.lines().filter(|l| l.starts_with(start)).count();
    let (errors, hints) = (count("error: "), count("hint: "));
    assert!(errors == 1 && hints <= 1, "one error, at most one hint: {text}");
    let known = ["error: ", "hint: ", "warning: ", " WARN "];
    // The plan, printed before the error.
    let plan = ["stock", "fits in memory", "maps ", "streams "];
    let known = [&known[..], &plan].concat();
    for line in text.lines() {
        assert!(known.iter().any(|start| line.starts_with(start)), "an unexpected line: {line}");
    }
    text.lines().find_map(|l| l.strip_prefix("error: ")).unwrap().to_owned()
}

/// A tiny model with experts, in a folder of its own.
pub fn tiny(dir: &TempDir) -> PathBuf {
    let spec = terrace_testkit::Spec::new(terrace_testkit::Arch::Qwen3Moe);
    terrace_testkit::write(&spec, dir.path().join("tiny.gguf")).unwrap()
}
