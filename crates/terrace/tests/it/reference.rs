//! Generated documentation: manual pages, completions, and the reference in the docs.

use crate::common;
use crate::common::{run, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

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
    assert!(page.contains("Variable: `TERRACE_RAM_BUDGET`") && !page.contains("123MiB"));
}

/// All keys of an object, and of objects in it, without those of plans.
fn keys(value: &Value, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                all.insert(key.clone());
                if key != "plan" {
                    keys(value, all);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, all)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_runs_json_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/run-json.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let bundled = common::bundled();
    let fixed = ["run", bundled.to_str().unwrap(), "-p", "In", "-n", "4", "--temp", "0", "--json"];
    let with = ["--rpc", server.endpoint(), "--warm-start", "off"];
    let copies = ["--ram-budget", "6MiB", "-ngl", "0", "--hot-cache", "2MiB"];
    let layers = ["--ram-budget", "6MiB", "-ngl", "3", "--hot-cache", "off"];
    let dir = tempfile::tempdir().unwrap();
    let replica = dir.path().join("replica.gguf");
    std::fs::copy(&bundled, &replica).unwrap();
    let replicas = ["--ram-budget", "6MiB", "--hot-cache", "off", "--replica", replica.to_str().unwrap()];
    let lossy = ["--ram-budget", "6MiB", "--hot-cache", "off", "--lossy", "kld=0.02"];
    let mut all = BTreeSet::new();
    for more in [&copies[..], &layers, &replicas, &lossy] {
        keys(&common::json(&run(fixed.iter().chain(&with).chain(more))), &mut all);
    }
    let undocumented: Vec<_> = all.iter().filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
    // The tables up to the timeline's name nothing else. These fields do not come in every run.
    let rare = ["on", "preset", "problem"];
    let rows = page.split("## Timelines").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    for row in rows {
        let names = row.split('|').nth(1).unwrap();
        for name in names.split('`').skip(1).step_by(2).filter(|name| !rare.contains(name)) {
            assert!(all.contains(name), "{name} is not in the JSON: {row}");
        }
    }
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
