//! Chores of the repository.
//!
//! `cargo xtask docs` writes `docs/reference/cli.md` from the program's own definitions. A test of
//! the binary fails if the page is stale.

#![allow(clippy::disallowed_methods, reason = "a tool of the repository reads the environment")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["docs"] => docs(),
        _ => Err("usage: cargo xtask docs".into()),
    };
    match done {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the reference of all commands.
fn docs() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "terrace", "--", "man", "--markdown"])
        .current_dir(&root)
        .env("TERRACE_CONFIG", "/dev/null")
        .output()
        .map_err(|error| format!("cargo run: {error}"))?;
    if !output.status.success() {
        return Err(format!("terrace man: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let path = root.join("docs/reference/cli.md");
    std::fs::write(&path, &output.stdout).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
