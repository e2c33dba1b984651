//! A file that appears under its name only when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Open from the start, under another name: a folder that is not there or may not be written to is noticed before a run, and
/// what was there before is not lost if the run fails.
#[derive(Debug)]
pub struct PartFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
    done: bool,
}

impl PartFile {
    /// For `path`, beside it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut part = path.to_owned().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        // Renaming would replace a device, and fail for a folder at the end of the run.
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("not a regular file"));
        }
        let file = File::create(&part)?;
        Ok(Self { path: path.to_owned(), part, file, done: false })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills it, and gives it its name; the size in bytes.
    pub fn finish(mut self, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<u64> {
        let mut out = BufWriter::new(&self.file);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        let size = self.file.metadata()?.len();
        std::fs::rename(&self.part, &self.path)?;
        self.done = true;
        Ok(size)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.done {
            // Nothing of a run that ended early is worth keeping; that it cannot be removed is not worth an error.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}
