//! A file that appears under its name only when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Open from the start, under another name: a folder that is not there or may not be written to is noticed before a run, and
/// what was there before is not lost if the run fails.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    name: SealedFile,
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
        Ok(Self { file, name: SealedFile { path: path.to_owned(), part, done: false } })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.name.path
    }

    /// Fills it, and gives it its name; the size in bytes.
    pub fn finish(self, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<u64> {
        let mut out = BufWriter::new(&self.file);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        let size = self.file.metadata()?.len();
        self.name.publish()?;
        Ok(size)
    }

    /// To write to it; [`PartFile::seal`] ends that.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What was written is on the disk, the file closed, and complete but for its name.
    pub fn seal(self) -> io::Result<SealedFile> {
        self.file.sync_all()?;
        Ok(self.name)
    }
}

/// A complete file under another name: of many, all can be sealed before the first one is published.
#[derive(Debug)]
pub struct SealedFile {
    path: PathBuf,
    part: PathBuf,
    done: bool,
}

impl SealedFile {
    /// Gives it its name.
    pub fn publish(mut self) -> io::Result<()> {
        std::fs::rename(&self.part, &self.path)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for SealedFile {
    fn drop(&mut self) {
        if !self.done {
            // Nothing of a run that ended early is worth keeping; that it cannot be removed is not worth an error.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}
