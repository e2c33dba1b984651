//! `cargo xtask docs`: what follows from the program's definitions of its options.

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
    for (file, option) in FILES {
        let path = root.join(file);
        std::fs::write(&path, printed(root, option)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        written.push(path.display().to_string());
    }
    Ok(written.join("\n"))
}

fn printed(root: &Path, option: &str) -> Result<Vec<u8>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "terrace", "--", "man", option])
        .current_dir(root)
        .env("TERRACE_CONFIG", "/dev/null")
        .output()
        .map_err(|error| format!("cargo run: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("terrace man: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
