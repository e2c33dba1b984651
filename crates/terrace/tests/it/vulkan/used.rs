//! The device is there, and it computes what it is given.

use super::{run, terrace};
use crate::common::{bundled, json, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// More tokens than a graph of decoding has. llvmpipe of Mesa 22 crashes in F16 graphs of 21 tokens,
/// with any width of its vectors; graphs of 16 it computes.
const PROMPT: &str = "In the beginning was the word, and the word was with all";

/// The trained model in F16, which a device multiplies by as the CPU does, but for the order of sums.
fn trained(dir: &TempDir) -> String {
    let path = dir.path().join("f16.gguf").to_str().unwrap().to_owned();
    let made = run(["quantize", bundled().to_str().unwrap(), &path, "--type", "F16", "--allow-requantize"]);
    assert!(made.status.success(), "{}", stderr(&made));
    path
}

fn report(model: &str, more: &[&str]) -> Value {
    let fixed = ["run", model, "-p", PROMPT, "-n", "24", "--temp", "0", "--ubatch", "16", "--json"];
    json(&run(fixed.iter().chain(more)))
}

#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn doctor_lists_it() {
    let output = run(["doctor", "--json"]);
    let text = stdout(&output);
    let report: Value = serde_json::from_str(text).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let device = findings.iter().any(|finding| {
        finding["check"] == "devices" && finding["text"].as_str().unwrap().starts_with("Vulkan0 (")
    });
    assert!(device, "{text}");
    if std::env::var_os(super::LIBRARY).is_some() {
        let library = findings.iter().find(|finding| finding["check"] == "backends").unwrap();
        let told = library["text"].as_str().unwrap();
        assert!(told.contains("libggml-vulkan.so is loaded: Vulkan of ggml "), "{told}");
    }
    // And nothing of it where libraries are switched off, or Vulkan is.
    let without =
        terrace().env("TERRACE_BACKENDS", "off").env("GGML_DISABLE_VULKAN", "1").arg("doctor").output();
    assert!(!stdout(&without.unwrap()).contains("Vulkan0"));
}

/// The program has all of ggml that the library asks for: nothing of it binds to the library's own
/// copy of ggml.
#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn the_library_binds_to_the_program() {
    let Some(folder) = std::env::var_os(super::LIBRARY) else {
        eprintln!("not with a backend that is linked in");
        return;
    };
    let symbols = |kind: &str, file: &Path| -> BTreeSet<String> {
        let output = Command::new("nm").args(["-D", kind]).arg(file).output().unwrap();
        let names = stdout(&output).split_whitespace().filter(|name| name.starts_with("ggml_"));
        names.map(str::to_owned).collect()
    };
    let asked = symbols("--undefined-only", &Path::new(&folder).join("libggml-vulkan.so"));
    let there = symbols("--defined-only", Path::new(env!("CARGO_BIN_EXE_terrace")));
    assert!(asked.contains("ggml_nbytes"), "{asked:?}");
    assert_eq!(asked.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// Layers on the device give the tokens of the CPU: the trained model has no near ties in this text.
#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn layers_compute_there() {
    let dir = TempDir::new().unwrap();
    let model = trained(&dir);
    let golden = report(&model, &["--stock"])["tokens"].clone();
    for layers in ["3", "7"] {
        let ours = report(&model, &["-ngl", layers]);
        assert_eq!(ours["tokens"], golden, "-ngl {layers}");
        let placed = ours["plan"]["placement"]["layers"].as_array().unwrap();
        // The output head is one of them.
        let there = placed.iter().filter(|layer| layer["home"] == "Vulkan0").count();
        assert_eq!(there.to_string(), layers, "{placed:?}");
    }
}

/// Copies of a part, and of all experts, compute there.
#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn copies_compute_there() {
    let dir = TempDir::new().unwrap();
    let model = trained(&dir);
    let golden = report(&model, &["--stock"])["tokens"].clone();
    let streamed = ["-ngl", "0", "--stream", "experts", "--ram-budget", "20MiB", "--hot-update", "256MiB"];
    for (size, all) in [("20MiB", false), ("1GiB", true)] {
        let run = report(&model, &[&streamed[..], &["--hot-cache", size, "--hot-lanes", "always"]].concat());
        assert_eq!(run["tokens"], golden, "copies of {size}");
        let hot = &run["hot_experts"];
        let count = |key: &str| hot[key].as_u64().unwrap();
        assert!(count("hot") > 0 && count("filled") > 0, "{hot:#}");
        // An expert's first use fills its slot: it is computed here.
        assert!(count("cold") > 0 && (!all || count("hot") > count("cold")), "{size}: {hot:#}");
        assert_eq!(run["plan"]["hot"]["devices"][0]["device"], "Vulkan0", "{:#}", run["plan"]["hot"]);
    }
}
