//! `cargo xtask licences`: the texts that a distribution of the binary must carry.

use crate::metadata::{Package, linked};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Lists all packages that are linked into the binary for a target, each text once, with whose it is.
///
/// # Errors
/// A package without a text.
pub fn list(root: &Path, target: &str) -> Result<String, String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in linked(root, target)? {
        let name = format!("{} {}", package.name, package.version);
        let found = texts_of(&package);
        if found.is_empty() {
            // Some packages of a larger repository leave the text out; what they name is known.
            let licence = package.license.clone().unwrap_or_default();
            texts.entry(format!("Licensed under {licence}.\n")).or_default().push(name);
            continue;
        }
        for path in found {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            texts.entry(text.trim().replace('\r', "") + "\n").or_default().push(name.clone());
        }
    }
    for path in of_page(root)? {
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let owner = format!("{} (of the server's page)", name.trim_start_matches("LICENSE-"));
        texts.entry(text.trim().replace('\r', "") + "\n").or_default().push(owner);
    }
    let mut by_owner: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, owners)| (owners, text)).collect();
    by_owner.sort();
    let mut all = String::from("Terrace's binary contains these packages, under these licences.\n");
    for (owners, text) in by_owner {
        write!(all, "\n{}\n{}\n\n{text}", "=".repeat(80), owners.join(", ")).expect("a string");
    }
    Ok(all)
}

/// Licences of the libraries that the server's page brings along.
fn of_page(root: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = root.join("crates/terrace-server/src/admin/page/vendor");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && is_licence(path))
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(format!("{}: no licences", folder.display()));
    }
    Ok(found)
}

/// A package's licence files, and those of what it brings along: `LICENSE-MIT`, `COPYING`,
/// `llama.cpp/LICENSE`.
fn texts_of(package: &Package) -> Vec<PathBuf> {
    let folder = Path::new(&package.manifest_path).parent().unwrap_or(Path::new("."));
    let mut found: Vec<PathBuf> = [folder.to_owned(), folder.join("llama.cpp")]
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && is_licence(path))
        .collect();
    found.sort();
    found
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    ["license", "licence", "copying", "notice", "unlicense"].iter().any(|word| name.starts_with(word))
        && !name.ends_with(".html")
}
