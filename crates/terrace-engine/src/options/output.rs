//! Paths that are written to. A field of type [`Output`] is how an option declares that it writes: a program
//! finds these values among all others, and checks them before it starts.

use clap::builder::{PathBufValueParser, TypedValueParser};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use terrace_platform::own_file::OwnFile;

/// A path that is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    path: PathBuf,
    /// Its kind.
    pub kind: &'static OwnFile,
    /// True if the path may also be a folder, in which files get names of their own.
    pub folder: bool,
    /// True if the path may also be a pipe or a device, which is written to directly.
    pub special: bool,
}

impl Output {
    /// A file of this kind.
    pub const fn new(path: PathBuf, kind: &'static OwnFile) -> Self {
        Self { path, kind, folder: false, special: false }
    }
}

impl Deref for Output {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Output {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl From<Output> for PathBuf {
    fn from(output: Output) -> Self {
        output.path
    }
}

/// Reads the path of a file of this kind, which will be written.
pub fn output(kind: &'static OwnFile) -> impl TypedValueParser<Value = Output> {
    PathBufValueParser::new().map(move |path| Output::new(path, kind))
}

/// Reads the path of a file of this kind, or of a folder for several.
pub fn output_or_folder(kind: &'static OwnFile) -> impl TypedValueParser<Value = Output> {
    PathBufValueParser::new().map(move |path| Output { folder: true, ..Output::new(path, kind) })
}

/// Reads the path of a file of this kind, or of a pipe or device to write to.
pub fn output_or_pipe(kind: &'static OwnFile) -> impl TypedValueParser<Value = Output> {
    PathBufValueParser::new().map(move |path| Output { special: true, ..Output::new(path, kind) })
}
