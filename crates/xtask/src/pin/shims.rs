//! The C++ over a tree's own headers, and the copies of ggml's private header.

use super::compiler::check_file;
use super::moved::Moved;
use super::tree::Tree;
use std::path::{Path, PathBuf};

/// Compiles each shim against the tree, on all cores. Returns their number.
///
/// # Errors
/// The folder cannot be read, or there is no compiler.
pub fn compile(folder: &Path, (tree, shown): (&Tree, &str), moved: &mut Vec<Moved>) -> Result<usize, String> {
    let shims = files(&folder.join("shims"), "cpp")?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for some in shims.chunks(cores) {
        let checked = std::thread::scope(|scope| {
            let one = |path: &'_ PathBuf| {
                let path = path.clone();
                scope.spawn(move || check_file(tree, &path))
            };
            let all: Vec<_> = some.iter().map(one).collect();
            all.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        for (path, complaints) in some.iter().zip(checked) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let complaints = complaints?;
            let Some(first) =
                complaints.iter().find(|one| Path::new(&one.file) == path).or(complaints.first())
            else {
                continue;
            };
            let (ours, theirs) = match Path::new(&first.file) == path {
                true => (format!("{shown}/shims/{name}:{}", first.line), "its headers".to_owned()),
                false => (format!("{shown}/shims/{name}"), format!("{}:{}", first.file, first.line)),
            };
            moved.push(Moved::new(&ours, &theirs, &name, &format!("does not compile: {}", first.what)));
        }
    }
    Ok(shims.len())
}

/// Compares the copy of the private header that is of the tree's version of ggml, if there is one. Returns the
/// number of copies.
///
/// # Errors
/// The folder cannot be read.
pub fn compare_headers(
    folder: &Path,
    (tree, shown): (&Tree, &str),
    moved: &mut Vec<Moved>,
) -> Result<usize, String> {
    const HEADER: &str = "ggml-backend-impl.h";
    let folder = folder.join("headers");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let copies: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join(HEADER)).collect();
    let copies: Vec<&PathBuf> = copies.iter().filter(|path| path.is_file()).collect();
    let version = tree.ggml_version();
    for copy in &copies {
        let of = copy.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        if Some(&of) != version.as_ref() {
            continue;
        }
        let ours = std::fs::read_to_string(copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        let theirs = tree.text(&format!("ggml/src/{HEADER}")).unwrap_or_default();
        if let Some(line) = first_difference(&ours, &theirs) {
            let (here, there) =
                (format!("{shown}/headers/{of}/{HEADER}:{line}"), format!("ggml/src/{HEADER}:{line}"));
            let of_line = |text: &str| text.lines().nth(line - 1).unwrap_or("nothing").trim().to_owned();
            let what = format!("has `{}`, here `{}`", of_line(&theirs), of_line(&ours));
            moved.push(Moved::new(&here, &there, HEADER, &what));
        }
    }
    Ok(copies.len())
}

/// The first line, from 1 on, that two texts do not share.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    let (mut a, mut b) = (a.lines(), b.lines());
    (1..).find_map(|line| match (a.next(), b.next()) {
        (None, None) => Some(None),
        (x, y) if x != y => Some(Some(line)),
        _ => None,
    })?
}

/// A folder's files of an extension, by name.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|one| one == extension));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_found() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nc\n"), Some(2));
    }
}
