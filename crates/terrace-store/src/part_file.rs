//! Files that appear under their names only when they are complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use terrace_platform::file;
use terrace_platform::own_file::OwnFile;

/// A file that is being written. It is opened before a run, so that a directory that does not exist
/// or cannot be written to is reported early, and an existing file is not lost if the run fails.
///
/// If the file system supports it, the file has no name until it is complete, so nothing of it
/// remains however the process ends.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    name: SealedFile,
}

impl PartFile {
    /// Opens a file of a kind that will become `path`, in the same directory.
    ///
    /// # Errors
    /// Errors of the system, and an error if a file is there that one of this kind may not replace
    /// ([`OwnFile::check`]).
    pub fn create(path: &Path, kind: &'static OwnFile) -> io::Result<Self> {
        let mut part = path.to_owned().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        kind.check(path)?;
        let nameless = file::nameless(folder(path))?;
        let named = nameless.is_none();
        let file = nameless.map_or_else(|| named_part(&part, kind), Ok)?;
        Ok(Self { file, name: SealedFile { path: path.to_owned(), part, named, kind } })
    }

    /// Returns the path that the file will have.
    pub fn path(&self) -> &Path {
        &self.name.path
    }

    /// Writes the contents, gives the file its name, and returns its size in bytes.
    ///
    /// # Errors
    /// Errors of the system and of `write`.
    pub fn finish(mut self, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<u64> {
        let mut out = BufWriter::new(&self.file);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        let size = self.file.metadata()?.len();
        self.link()?;
        self.name.publish()?;
        Ok(size)
    }

    /// Returns the file for writing, until [`PartFile::seal`].
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Syncs the file to the disk and closes it. It is complete, but until [`SealedFile::publish`]
    /// its name ends in `.part`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn seal(mut self) -> io::Result<SealedFile> {
        self.file.sync_all()?;
        self.link()?;
        Ok(self.name)
    }

    /// Gives the file the name with `.part`, because a nameless file cannot replace an existing
    /// one.
    fn link(&mut self) -> io::Result<()> {
        if self.name.named {
            return Ok(());
        }
        match file::name(&self.file, &self.name.part) {
            // Left by a run that was killed, or the user's.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_part(&self.name.part, self.name.kind)?;
                file::name(&self.file, &self.name.part)?;
            }
            other => other?,
        }
        self.name.named = true;
        Ok(())
    }
}

/// Opens the file under the name with `.part`.
#[expect(clippy::disallowed_methods, reason = "this is where files are written")]
fn named_part(part: &Path, kind: &OwnFile) -> io::Result<File> {
    remove_part(part, kind)?;
    File::create_new(part)
}

/// Removes what a run that was killed left. Downloads of other programs end in `.part`, too.
fn remove_part(part: &Path, kind: &OwnFile) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", part.display()));
    kind.check_no_link(part).map_err(named)?;
    match std::fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(error)),
        _ => Ok(()),
    }
}

/// Returns the directory of a path.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A complete file under another name. With several files, all can be sealed before the first one
/// is published.
#[derive(Debug)]
pub struct SealedFile {
    path: PathBuf,
    part: PathBuf,
    /// True if it exists under the other name.
    named: bool,
    kind: &'static OwnFile,
}

impl SealedFile {
    /// Gives the file its name.
    ///
    /// # Errors
    /// Errors of the system, and an error if another file has appeared there that may not be
    /// replaced.
    pub fn publish(mut self) -> io::Result<()> {
        self.kind.check(&self.path)?;
        file::replace(&self.part, &self.path)?;
        self.named = false;
        Ok(())
    }
}

impl Drop for SealedFile {
    fn drop(&mut self) {
        if self.named {
            // Files of a run that ended early are not kept; a failure to remove one is not an
            // error.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}
