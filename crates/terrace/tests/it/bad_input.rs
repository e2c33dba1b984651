//! Bad input ends in one line that names what is wrong and where, and in an exit code: no crash, no
//! backtrace, no silence.

use crate::common;
use crate::common::{bundled, error_line, failure, run, stderr, terrace, tiny};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use tempfile::TempDir;
use terrace_testkit::hostile::{self, Defect};
use terrace_testkit::{Arch, Spec, write_split};

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn files_that_are_no_models() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing.gguf");
    let empty = dir.path().join("empty.gguf");
    File::create(&empty).unwrap();
    for model in [&missing, &empty, &dir.path().to_owned()] {
        for args in [vec!["run", path(model), "-p", "x"], vec!["inspect", path(model)]] {
            let error = failure(&run(&args), 1);
            assert!(error.contains(path(model)), "{args:?}: {error}");
        }
    }
}

#[test]
fn every_defect_of_a_file_is_refused() {
    let dir = TempDir::new().unwrap();
    let good = tiny(&dir);
    for (defect, bad) in hostile::write_all(&good, &dir.path().join("bad")).unwrap() {
        let output = run(["run", path(&bad), "-p", "x", "-n", "1"]);
        let error = failure(&output, 1);
        assert!(error.contains(defect.name()), "{defect:?}: no file in: {error}");
        let inspected = run(["inspect", path(&bad)]);
        // The header of an unknown architecture is still a header.
        if defect == Defect::UnknownArchitecture {
            assert!(inspected.status.success(), "{}", stderr(&inspected));
            let said = stderr(&output);
            assert!(error.contains("its architecture is `zz") && said.contains("LLAMA="), "{said}");
        } else {
            failure(&inspected, 1);
        }
    }
}

#[test]
fn shards_that_do_not_belong_together() {
    let dir = TempDir::new().unwrap();
    let folder = |name: &str| {
        let folder = dir.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    };
    let spec = Spec::new(Arch::Qwen3Moe);
    let shards = write_split(&spec, folder("good"), 3).unwrap();
    let other = Spec { layers: spec.layers + 1, seed: 2, ..spec.clone() };
    let other = write_split(&other, folder("other"), 3).unwrap();
    assert!(run(["run", path(&shards[0]), "-p", "x", "-n", "1"]).status.success(), "the good one is good");

    let second = shards[1].file_name().unwrap().to_str().unwrap();
    let missing = hostile::missing_shard(&shards, &folder("missing")).unwrap();
    let mixed = hostile::mixed_shards(&shards, &other, &folder("mixed")).unwrap();
    let swapped = hostile::swapped_shards(&shards, &folder("swapped")).unwrap();
    for (first, named) in [(missing, second), (mixed, "-of-00003.gguf"), (swapped, "-of-00003.gguf")] {
        let error = failure(&run(["run", path(&first), "-p", "x", "-n", "1"]), 1);
        assert!(error.contains(named), "{error}");
    }
    // This is not the first shard, and the error names it.
    let error = failure(&run(["run", path(&shards[1]), "-p", "x", "-n", "1"]), 1);
    assert!(error.contains(second), "{error}");
}

#[test]
fn an_unreadable_file() {
    let dir = TempDir::new().unwrap();
    let model = tiny(&dir);
    fs::set_permissions(&model, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = terrace();
    if File::open(&model).is_ok() {
        // root can read everything, by these two capabilities. As another user, the program might not
        // reach this directory.
        let without = "-dac_override,-dac_read_search";
        command = common::command(Path::new("setpriv"));
        command.args(["--bounding-set", without, "--inh-caps", without, env!("CARGO_BIN_EXE_terrace")]);
    }
    let error = failure(&command.args(["run", path(&model), "-p", "x"]).output().unwrap(), 1);
    assert!(error.contains(path(&model)) && error.to_lowercase().contains("permission denied"), "{error}");
}

#[test]
fn what_does_not_fit() {
    let model = bundled();
    let model = path(&model);
    let output = run(["run", model, "-p", "x", "--stream", "experts", "--ram-budget", "64KiB"]);
    let error = failure(&output, 1);
    assert!(error.contains("64 KiB") && error.contains("iB"), "{error}");
    assert!(stderr(&output).contains("hint: use --ram-budget"), "{}", stderr(&output));

    let error = failure(&run(["run", model, "-p", "x", "--ctx", "4000000000"]), 1);
    assert!(error.contains("4000000000"), "{error}");

    let long = "word ".repeat(400);
    let output = run(["run", model, "-p", &long, "--ctx", "256"]);
    let error = failure(&output, 1);
    assert!(error.contains("context's 256 tokens") && error.contains("tokens"), "{error}");
    assert!(stderr(&output).contains("--ctx"), "{}", stderr(&output));
}

#[test]
fn a_minimum_that_is_named_is_enough() {
    let model = bundled();
    let output = run(["run", path(&model), "-p", "x", "--stream", "experts", "--ram-budget", "64KiB"]);
    let text = stderr(&output);
    let hint = text.lines().find_map(|l| l.strip_prefix("hint: use --ram-budget ")).unwrap();
    let budget = hint.split(' ').next().unwrap();
    let output =
        run(["run", path(&model), "-p", "x", "-n", "4", "--stream", "experts", "--ram-budget", budget]);
    assert!(output.status.success(), "{budget}: {}", stderr(&output));
}

#[test]
fn input_that_is_no_text() {
    let model = bundled();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("prompt.txt");
    fs::write(&file, b"caf\xc3\xa9 \xff\xfe").unwrap();
    let error = failure(&run(["run", path(&model), "-f", path(&file)]), 1);
    assert!(error.contains("prompt.txt") && error.contains("offset 6"), "{error}");

    for args in [vec!["run", path(&model)], vec!["run", path(&model), "-f", "-"]] {
        let mut child = spawn(&args);
        child.stdin.take().unwrap().write_all(b"\x80").unwrap();
        let error = failure(&child.wait_with_output().unwrap(), 1);
        assert!(error.contains("stdin") && error.contains("offset 0"), "{error}");
    }
    let error = failure(&run(["run", path(&model), "-f", "/nonexistent/prompt"]), 1);
    assert!(error.contains("/nonexistent/prompt"), "{error}");
    failure(&run(["run", path(&model), "-p", ""]), 2);
}

#[test]
fn a_command_line_that_is_wrong() {
    for args in [
        vec!["run", "m.gguf", "--ram-budget", "lots"],
        vec!["run", "m.gguf", "--io", "carrier-pigeon"],
        vec!["run", "m.gguf", "--stream", "everything"],
        vec!["run", "m.gguf", "-n", "-5"],
        vec!["run", "m.gguf", "-p", "x", "-f", "y"],
        vec!["run", "m.gguf", "--no-such-option"],
        vec!["inspect"],
        vec!["bench", "m.gguf", "--baseline-repack", "on"],
        vec!["dance"],
    ] {
        failure(&run(&args), 2);
    }
    let error = failure(&run(["run", "hf:nonsense", "-p", "x"]), 1);
    assert!(error.contains("hf:nonsense"), "{error}");
}

#[test]
fn a_read_error_while_streaming_names_the_place() {
    let model = bundled();
    for io in ["uring", "pread"] {
        let args =
            ["run", path(&model), "-p", "In the beginning", "-n", "50", "--temp", "0", "--json", "--io", io];
        let streaming = ["--stream", "experts", "--ram-budget", "4MiB", "--inject-fault", "eio@300.."];
        let error = failure(&run(args.iter().chain(&streaming)), 1);
        assert!(error.contains("tiny-moe-Q4_K.gguf") && error.contains("offset"), "{io}: {error}");
        assert!(error.contains("blk."), "{io}: no tensor in: {error}");
    }
    let error = failure(&run(["run", path(&model), "-p", "x", "--inject-fault", "flood@3"]), 1);
    assert!(error.contains("flood"), "{error}");
}

#[test]
fn mapped_weights_and_options_that_they_contradict() {
    let model = bundled();
    for (option, value) in
        [("--direct", "on"), ("--direct", "off"), ("--io", "uring"), ("--inject-fault", "eio@1")]
    {
        let output = run(["run", path(&model), "-p", "x", "--manage", "mapped", option, value]);
        let error = failure(&output, 1);
        assert!(!error.contains("--"), "{error}");
        let hint = stderr(&output);
        assert!(hint.contains("hint: leave out --mmap") && hint.contains(option), "{hint}");
    }
    // Mapped pages in memory count: a budget that cannot hold them is refused.
    let output = run(["run", path(&model), "-p", "x", "--manage", "mapped", "--ram-budget", "4MiB"]);
    assert!(failure(&output, 1).contains("4 MiB") && stderr(&output).contains("hint: use --ram-budget"));
}

#[test]
fn a_mapped_file_that_shrinks_ends_the_run_in_one_line() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("shrinking.gguf");
    fs::copy(bundled(), &model).unwrap();
    fs::set_permissions(&model, fs::Permissions::from_mode(0o644)).unwrap();
    let args =
        ["run", path(&model), "-p", "In the beginning", "--temp", "0", "-n", "900", "--manage", "mapped"];
    let mut child = spawn(&args);
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    fs::OpenOptions::new().write(true).open(&model).unwrap().set_len(1 << 20).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?}: {}", output.status, stderr(&output));
    let error = error_line(&stderr(&output));
    assert!(error.contains("shrinking.gguf") && error.contains("offset"), "{error}");
}

fn spawn(args: &[&str]) -> Child {
    let mut command = terrace();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Starts a run that streams slowly, and returns after its first text.
fn streaming(model: &Path, n: &str) -> Child {
    let slow = ["--inject-fault", "latency=2ms@1..", "--stream", "experts", "--ram-budget", "4MiB"];
    let args = ["run", path(model), "-p", "In the beginning", "--temp", "0", "-n", n];
    let mut child = spawn(&[&args[..], &slow[..]].concat());
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    child
}

#[test]
fn a_file_that_shrinks_while_it_streams() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("shrinking.gguf");
    fs::copy(bundled(), &model).unwrap();
    fs::set_permissions(&model, fs::Permissions::from_mode(0o644)).unwrap();
    let child = streaming(&model, "900");
    fs::OpenOptions::new().write(true).open(&model).unwrap().set_len(1 << 20).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?}: {}", output.status, stderr(&output));
    let error = error_line(&stderr(&output));
    assert!(error.contains("shrinking.gguf") && error.contains("blk."), "{error}");
}

#[test]
fn a_file_that_vanishes_while_it_streams_is_read_to_the_end() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("vanishing.gguf");
    fs::copy(bundled(), &model).unwrap();
    let child = streaming(&model, "12");
    fs::remove_file(&model).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the file is open, its bytes are there: {}", stderr(&output));
}

#[test]
fn ctrl_c_ends_generation_with_130() {
    let model = bundled();
    let child = streaming(&model, "900");
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{:?}: {}", output.status, stderr(&output));
    assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
    assert!(output.stdout.ends_with(b"\n"), "the line is ended");
}

#[test]
fn a_full_disk_behind_stdout_is_an_error_and_a_closed_pipe_is_none() {
    let model = bundled();
    let args = ["run", path(&model), "-p", "In the beginning", "-n", "8", "--temp", "0"];
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = terrace().args(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error_line(&stderr(&output)).contains("stdout"), "{}", stderr(&output));

    let mut child = spawn(&args);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert!(output.status.success() && !text.contains("error"), "{:?}: {text}", output.status);
}

#[test]
fn a_hub_that_is_not_there() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cache = TempDir::new().unwrap();
    let mut command = terrace();
    command.args(["run", "hf:owner/repo:file.gguf", "-p", "x"]);
    command.env("HF_ENDPOINT", format!("http://{closed}")).env("HF_HUB_CACHE", cache.path());
    let error = failure(&command.output().unwrap(), 1);
    assert!(error.contains(&closed.to_string()), "{error}");
}
