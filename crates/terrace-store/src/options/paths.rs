//! Lists of paths in one value, separated by commas.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use terrace_platform::names;

/// The paths in one value of a repeatable option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathList(Vec<PathBuf>);

impl PathList {
    /// The paths in all values of an option, in order.
    pub fn all(lists: &[Self]) -> Vec<PathBuf> {
        lists.iter().flat_map(|Self(paths)| paths.clone()).collect()
    }
}

impl From<OsString> for PathList {
    /// Reads paths separated by commas. A comma is part of a name if there is such a file.
    fn from(text: OsString) -> Self {
        let names = separated(&text, |name| Path::new(name).exists());
        Self(names.into_iter().map(PathBuf::from).collect())
    }
}

/// Splits a text at its commas, except where `exists` finds a longer name; the longest one counts.
pub fn separated(text: &OsStr, exists: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    let pieces = names::split(text, b',');
    let (mut names, mut from) = (Vec::new(), 0);
    while from < pieces.len() {
        let name = |to: usize| pieces[from..to].join(OsStr::new(","));
        let longer = (from + 2..=pieces.len()).rev().find(|&to| exists(&name(to)));
        let to = longer.unwrap_or(from + 1);
        names.push(name(to));
        from = to;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_unless_a_file_has_them_in_its_name() {
        let split = |text: &str, files: &[&str]| {
            let names = separated(OsStr::new(text), |name| files.iter().any(|file| name == *file));
            names.into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(split("a,b,c", &[]), ["a", "b", "c"]);
        assert_eq!(split("a,b,c", &["a,b"]), ["a,b", "c"]);
        assert_eq!(split("a,b,c", &["a", "b,c"]), ["a", "b,c"]);
        assert_eq!(split("a,b,c", &["a,b", "a,b,c"]), ["a,b,c"]);
        assert_eq!(split("a", &[]), ["a"]);
        assert_eq!(split("a,", &[]), ["a", ""]);
    }
}
