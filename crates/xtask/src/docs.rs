//! `cargo xtask docs`: what follows from the program's definitions of its options.

use crate::cargo::cargo;
use crate::header;
use std::path::Path;
use std::process::Command;

/// Files, with the options of `terrace man` that print them.
const FILES: [(&str, &str); 2] =
    [("docs/reference/cli.md", "--markdown"), ("crates/terrace-model/src/keys.txt", "--keys")];

/// Writes the reference of all commands, the keys of the configuration file and the header for C, and names them.
///
/// # Errors
/// The program cannot be built or run, or a file not be written.
pub fn write(root: &Path) -> Result<String, String> {
    let mut written = vec![header::write(root)?];
    build(root)?;
    for (file, option) in FILES {
        let path = root.join(file);
        std::fs::write(&path, printed(root, option)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        written.push(path.display().to_string());
    }
    Ok(written.join("\n"))
}

fn printed(root: &Path, option: &str) -> Result<Vec<u8>, String> {
    let output = Command::new(root.join("target/release/terrace"))
        .args(["man", option])
        .current_dir(root)
        .env("TERRACE_CONFIG", "/dev/null")
        .output()
        .map_err(|error| format!("terrace: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("terrace man: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Builds the program with the features that tests have, so that nothing is built twice.
fn build(root: &Path) -> Result<(), String> {
    let built = cargo()
        .args(["build", "--quiet", "--release", "--workspace", "--bin", "terrace"])
        .current_dir(root)
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if built.success() { Ok(()) } else { Err(format!("cargo build: {built}")) }
}
