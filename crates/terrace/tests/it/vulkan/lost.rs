//! A device that is lost in the middle of a run: a Vulkan layer (`lose.c`) has all of its work fail.

use super::{layer, terrace};
use crate::common::{bundled, stderr};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// Starts a long generation, loses the device at the first words, and waits for the end. Returns all
/// words.
fn lose(more: &[&str]) -> (String, Output) {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let bundled = bundled();
    let mut command = terrace();
    layer::add(&mut command, dir.path(), "lose", include_str!("lose.c"));
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
