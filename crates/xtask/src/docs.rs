//! `cargo xtask docs`: the reference of all commands.

use std::path::Path;
use std::process::Command;

/// Writes `docs/reference/cli.md` from the program's own definitions, and names it.
pub fn write(root: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "terrace", "--", "man", "--markdown"])
        .current_dir(root)
        .env("TERRACE_CONFIG", "/dev/null")
        .output()
        .map_err(|error| format!("cargo run: {error}"))?;
    if !output.status.success() {
        return Err(format!("terrace man: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let path = root.join("docs/reference/cli.md");
    std::fs::write(&path, &output.stdout).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}
