//! `cargo xtask llama TREE COMMAND...`: a command of cargo over other sources of llama.cpp than the pinned ones.
//!
//! The pinned `llama-cpp-sys-2` is copied into `target/llama/`, with a link to TREE in place of its own sources: it
//! makes bindings for them and builds them. Cargo takes the copy for the crate (`paths`), so that neither
//! `Cargo.toml` nor `Cargo.lock` changes, and what was built over other sources stays beside it.

use crate::cargo::cargo;
use crate::pin::tree::Tree;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Tells terrace-ggml's build script where the sources are.
const SOURCES: &str = "TERRACE_LLAMA_CPP";

/// Folder of the sources within the crate.
const FOLDER: &str = "llama.cpp";

/// Why the libraries of a distribution cannot be linked (decision 0117).
const SYSTEM: &str = "LLAMA takes a folder of sources: Terrace calls functions of ggml's CPU backend and of libllama's classes, \
     which a distribution's libraries and headers do not offer to programs that link them; `make plugin` and `terrace llama` run \
     a distribution's llama.cpp with Terrace inside";

/// Runs `cargo COMMAND...`.
///
/// # Errors
/// The tree is none; a copy cannot be made; the command fails.
pub fn run(root: &Path, tree: &str, command: &[&str]) -> Result<String, String> {
    if tree == "system" {
        return Err(SYSTEM.into());
    }
    let folder = Path::new(tree).canonicalize().map_err(|error| format!("{tree}: {error}"))?;
    Tree::open(&folder)?;
    let pinned = Tree::pinned(root)?.path("");
    let pinned = pinned.parent().ok_or("the pinned crate has no folder")?;
    let copy = root.join("target/llama").join(name_of(&folder));
    crate_over(pinned, &folder, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    let copy = copy.canonicalize().map_err(|error| format!("{}: {error}", copy.display()))?;

    // `cargo nextest run` takes options of cargo's after its own command.
    let verbs = if command.first() == Some(&"nextest") { 2 } else { 1 };
    let (verbs, options) = command.split_at(verbs.min(command.len()));
    let status = cargo()
        .args(verbs)
        .arg("--config")
        .arg(format!("paths=[{:?}]", copy.display().to_string()))
        .args(options)
        .env(SOURCES, &folder)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(format!("built over {}", folder.display())),
        false => Err(format!("cargo {}: {status}", command.join(" "))),
    }
}

/// The name of a tree's copy.
fn name_of(folder: &Path) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    folder.display().to_string().trim_start_matches('/').chars().map(kept).collect()
}

/// Copies a crate, without its sources of llama.cpp, and links others in their place. Files that have not changed
/// keep their times, by which cargo tells whether to build.
fn crate_over(pinned: &Path, sources: &Path, copy: &Path) -> io::Result<()> {
    copy_folder(pinned, copy)?;
    let link = copy.join(FOLDER);
    if fs::read_link(&link).is_ok_and(|there| there == sources) {
        return Ok(());
    }
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    link_folder(sources, &link)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, copied): (PathBuf, PathBuf) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == FOLDER {
            continue;
        }
        if path.is_dir() {
            copy_folder(&path, &copied)?;
            continue;
        }
        let bytes = fs::read(&path)?;
        if !fs::read(&copied).is_ok_and(|there| there == bytes) {
            fs::write(&copied, bytes)?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn link_folder(folder: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(folder, link)
}

#[cfg(windows)]
fn link_folder(folder: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_dir(folder, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_crate_and_the_other_sources_and_changes_no_times() {
        let dir = tempfile::tempdir().unwrap();
        let [pinned, one, other, copy] = ["pinned", "one", "other", "copy"].map(|name| dir.path().join(name));
        for (file, text) in
            [("pinned/src/lib.rs", "x"), ("pinned/llama.cpp/own", ""), ("one/a", ""), ("other/b", "")]
        {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        crate_over(&pinned, &one, &copy).unwrap();
        let time = || fs::metadata(copy.join("src/lib.rs")).unwrap().modified().unwrap();
        let before = time();
        crate_over(&pinned, &one, &copy).unwrap();
        assert!(copy.join("llama.cpp/a").is_file() && !copy.join("llama.cpp/own").exists());
        assert_eq!(time(), before);
        crate_over(&pinned, &other, &copy).unwrap();
        assert!(copy.join("llama.cpp/b").is_file());
        assert!(one.join("a").is_file() && pinned.join("llama.cpp/own").is_file());
    }

    #[test]
    fn trees_of_one_name_have_copies_of_their_own() {
        let names = ["/a/llama.cpp", "/b/llama.cpp"].map(|tree| name_of(Path::new(tree)));
        assert_eq!(names, ["a-llama.cpp", "b-llama.cpp"]);
    }
}
