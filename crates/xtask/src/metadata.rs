//! cargo's description of dependencies.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// A package of the tree.
#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Its licence, as an SPDX expression.
    pub license: Option<String>,
    /// Its source; `None` means from here.
    pub source: Option<String>,
    /// Its `Cargo.toml`.
    pub manifest_path: String,
    id: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

/// All packages that building and testing on `target` takes.
///
/// # Errors
/// Cargo's.
pub fn packages(root: &Path, target: &str) -> Result<Vec<Package>, String> {
    let output = cargo(root, &["metadata", "--locked", "--format-version=1", "--filter-platform", target])?;
    let found: Metadata =
        serde_json::from_str(&output).map_err(|error| format!("cargo metadata: {error}"))?;
    let used: BTreeSet<String> = found.resolve.nodes.into_iter().map(|node| node.id).collect();
    let mut packages = found.packages;
    packages.retain(|package| used.contains(&package.id));
    Ok(packages)
}

/// The target of most binaries.
pub const LINUX: &str = "x86_64-unknown-linux-gnu";

/// The packages of others that are linked into the binary for a target.
///
/// # Errors
/// Cargo's.
pub fn linked(root: &Path, target: &str) -> Result<Vec<Package>, String> {
    let tree = [
        "tree",
        "--locked",
        "--package=terrace",
        "--edges=normal,no-proc-macro",
        "--target",
        target,
        "--prefix=none",
        "--no-dedupe",
        "--format={p}",
    ];
    let tree = cargo(root, &tree)?;
    let names: BTreeSet<&str> = tree.lines().collect();
    let mut packages = packages(root, target)?;
    packages.retain(|p| p.source.is_some() && names.contains(format!("{} v{}", p.name, p.version).as_str()));
    Ok(packages)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = crate::cargo::cargo().args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("cargo {}: {error}", arguments[0]))?;
    if !output.status.success() {
        return Err(format!("cargo {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("cargo {}: {error}", arguments[0]))
}
