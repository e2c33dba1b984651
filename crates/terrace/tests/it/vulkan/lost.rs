//! A device that is lost in the middle of a run: a Vulkan layer (`lose.c`) has all of its work fail.

use super::terrace;
use crate::common::{bundled, stderr};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// What the loader of Vulkan is told of the layer.
const MANIFEST: &str = r#"{
    "file_format_version": "1.2.0",
    "layer": {
        "name": "VK_LAYER_TERRACE_lose", "type": "GLOBAL", "library_path": "./liblose.so",
        "api_version": "1.3.239", "implementation_version": "1", "description": "Loses the device"
    }
}"#;

/// Starts a long generation, loses the device at the first words, and waits for the end. Returns all
/// words.
fn lose(more: &[&str]) -> (String, Output) {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("lose.json"), MANIFEST).unwrap();
    std::fs::write(at("lose.c"), include_str!("lose.c")).unwrap();
    let compiled = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([at("liblose.so"), at("lose.c")])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", stderr(&compiled));
    let bundled = bundled();
    let mut command = terrace();
    command.env("VK_LAYER_PATH", dir.path()).env("VK_INSTANCE_LAYERS", "VK_LAYER_TERRACE_lose");
    command.env("LOSE_DEVICE", at("now"));
    command.args(["run", bundled.to_str().unwrap(), "-p", "In the beginning", "-n", "200", "--temp", "0"]);
    let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    std::fs::write(at("now"), "").unwrap();
    let rest = child.wait_with_output().unwrap();
    (String::from_utf8_lossy(&[&first[..], &rest.stdout].concat()).into_owned(), rest)
}

#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn copies_are_done_without() {
    let streamed = [
        "-ngl",
        "0",
        "--ram-budget",
        "6MiB",
        "--hot-cache",
        "8MiB",
        "--hot-update",
        "512KiB",
        "--hot-lanes",
        "always",
    ];
    let (words, output) = lose(&streamed);
    assert!(output.status.success(), "{output:?}");
    let said = stderr(&output);
    assert_eq!(said.matches("from now on the CPU computes").count(), 1, "{said}");
    assert!(words.split_whitespace().count() > 50, "{words}");
}

#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn weights_that_were_there_are_one_error() {
    let (_, output) = lose(&["-ngl", "99"]);
    assert_eq!((output.status.code(), output.status.signal()), (Some(1), None), "{output:?}");
    let said = stderr(&output);
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains("ErrorDeviceLost"), "{said}");
}
