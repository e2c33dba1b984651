//! `terrace llama`, with programs that say what they were started with.

use crate::common::{bundled, failure, stderr, stdout, terrace};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, write};

/// A folder with a plug-in, which is not loaded, and a llama-server that prints variables and
/// arguments.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let this = Self(dir);
        fs::write(this.plugin(), "").unwrap();
        let server = this.0.path().join("llama-server");
        fs::write(&server, "#!/bin/sh\nenv\nfor word; do echo \"word $word\"; done\n").unwrap();
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&server, this.0.path().join("llama-bench")).unwrap();
        this
    }

    fn plugin(&self) -> PathBuf {
        self.0.path().join("plugin.so")
    }

    fn terrace(&self, more: &[&str]) -> Command {
        let mut command = terrace();
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        command.env("PATH", path).env("TERRACE_PLUGIN", self.plugin()).arg("llama").args(more);
        command
    }
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|other| other == line)
}

fn words(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("word ")).collect()
}

#[test]
fn the_program_gets_the_plug_in_its_settings_and_its_own_arguments() {
    let (folder, model) = (Folder::new(), bundled());
    let model = model.to_str().unwrap();
    let own = ["-m", model, "-c", "512", "--manage", "--", "--help"];
    let ours = ["--ram-budget", "3MiB", "--stream", "experts", "--io=pread", "--"];
    let output = folder.terrace(&[&ours[..], &own].concat()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let (text, plan) = (stdout(&output), stderr(&output));
    assert_eq!(words(text), own);
    let plugin = folder.plugin().canonicalize().unwrap();
    assert!(has(text, &format!("GGML_BACKEND_PATH={}", plugin.display())), "{text}");
    for line in ["TERRACE_RAM_BUDGET=3145728", "TERRACE_STREAM=experts", "TERRACE_IO=pread"] {
        assert!(has(text, line), "{line}: {text}");
    }
    assert!(
        plan.contains("decode  ") && plan.contains("20.25 MiB in 18 tensors") && plan.contains("1.60 MiB of"),
        "{plan}"
    );

    let quiet =
        folder.terrace(&[&["-q", "llama-bench"], &ours[..], &["-m", model]].concat()).output().unwrap();
    assert_eq!((words(stdout(&quiet)), stderr(&quiet)), (vec!["-m", model], String::new()));
}

#[test]
fn settings_come_from_the_configuration_file_too() {
    let folder = Folder::new();
    let file = folder.0.path().join("terrace.toml");
    fs::write(
        &file,
        "ram-budget = \"5MiB\"\nstream = \"ffn\"\nctx = 64\nhot-cache = [\"GPU0=2MiB\", \"off\"]\nhot-lanes = \"always\"\n\
         lookahead = \"3MiB\"\nwarm-start = \"off\"\nhot-split = \"warm\"\nhot-weighting = \"uses\"\nlearned = \"l.json\"\n",
    )
    .unwrap();
    let config = file.to_str().unwrap();
    let mut command = folder.terrace(&["--config", config, "--stream", "all"]);
    // Options, then variables, then the file.
    let output = command.env("TERRACE_STREAM", "experts").env("TERRACE_HOT_SPLIT", "even").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for line in [
        "TERRACE_RAM_BUDGET=5242880",
        "TERRACE_STREAM=all",
        // What the plug-in has and `terrace llama` has no option for.
        &format!("TERRACE_CONFIG={config}"),
        "TERRACE_LOOKAHEAD=3145728",
        "TERRACE_WARM_START=off",
        "TERRACE_HOT_SPLIT=even",
        "TERRACE_HOT_WEIGHTING=uses",
        "TERRACE_LEARNED=l.json",
        "TERRACE_HOT_CACHE=GPU0=2097152,off",
        "TERRACE_HOT_LANES=always",
    ] {
        assert!(has(stdout(&output), line), "{line}: {}", stdout(&output));
    }
    assert!(stderr(&output).contains("the plug-in plans when"), "{}", stderr(&output));
}

#[test]
fn a_context_that_takes_the_room_of_weights_is_made_smaller_unless_it_was_asked_for() {
    let folder = Folder::new();
    let spec = Spec { layers: 2, context: 1 << 31, ..Spec::new(Arch::Mixtral) };
    let model = write(&spec, folder.0.path().join("model.gguf")).unwrap();
    let model = model.to_str().unwrap();
    let started = |more: &[&str]| {
        let output = folder.terrace(&[&["--", "-m", model], more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        words(stdout(&output)).join(" ")
    };
    assert_eq!(started(&[]), format!("-m {model} -c 4096"));
    assert_eq!(started(&["-c", "100"]), format!("-m {model} -c 100"));
}

#[test]
fn what_is_missing_is_told_before_anything_is_started() {
    let folder = Folder::new();
    let refused = |command: &mut Command, why: &str| {
        let output = command.output().unwrap();
        let code = output.status.code().unwrap();
        let error = failure(&output, code);
        assert!(error.contains(why), "{error}");
        assert!(code == 2 || why == "nothing.gguf", "{code}");
    };
    refused(&mut folder.terrace(&["llama-cli"]), "there is no llama-cli in PATH");
    refused(&mut folder.terrace(&["./llama-cli"]), "./llama-cli is not a program");
    refused(folder.terrace(&[]).env("TERRACE_PLUGIN", "/nothing.so"), "there is no plug-in /nothing.so");
    refused(&mut folder.terrace(&["--", "-m", "nothing.gguf"]), "nothing.gguf");
    refused(folder.terrace(&[]).env("GGML_BACKEND_PATH", "/other.so"), "GGML_BACKEND_PATH is /other.so");
    refused(&mut folder.terrace(&["-m", "x"]), "unexpected argument '-m'");
    // This process has ggml linked in and offers nothing of it; the program itself offers it.
    let this = std::env::current_exe().unwrap();
    refused(&mut folder.terrace(&[this.to_str().unwrap()]), "has ggml linked in");
    let itself = Path::new(env!("CARGO_BIN_EXE_terrace"));
    let version = folder.terrace(&["-q", itself.to_str().unwrap(), "--", "--version"]).output().unwrap();
    assert!(stdout(&version).starts_with("terrace "), "{}", stderr(&version));
}
