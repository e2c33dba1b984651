//! Generated documentation: manual pages, completions, and the reference in the docs.

use crate::common;
use crate::common::{run, stderr, stdout};
use std::path::Path;

#[test]
fn the_reference_in_the_docs_is_the_programs() {
    let output = run(["man", "--markdown"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page == stdout(&output), "docs/reference/cli.md is stale: run `cargo xtask docs`");
}

#[test]
fn the_reference_has_every_command_and_no_value_of_a_variable() {
    let mut command = common::terrace();
    let output = command.env("TERRACE_RAM_BUDGET", "123MiB").args(["man", "--markdown"]).output().unwrap();
    let page = stdout(&output);
    for command in ["run", "serve", "plan", "bench", "quantize", "trace record", "doctor"] {
        assert!(page.contains(&format!("## `terrace {command}`")), "{command}");
    }
    assert!(page.contains("[env: TERRACE_RAM_BUDGET]") && !page.contains("123MiB"));
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(["man", "--out", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(dir.path().join("terrace-run.1")).unwrap();
    assert!(page.starts_with(".ie") && page.contains("ram"), "{page}");
    assert!(stdout(&run(["man"])).contains(".TH terrace 1"));
}

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(["completions", shell]);
        let script = stdout(&output);
        assert!(script.contains("perplexity") && script.contains("ram-budget"), "{shell}");
    }
    assert_eq!(run(["completions", "csh"]).status.code(), Some(2));
}
