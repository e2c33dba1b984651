//! A file that appears under its name only when it is complete.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Open from the start: a folder that is not there or may not be written to is noticed before a run, and what was there before
/// is not lost if the run fails.
///
/// Where the file system can, the file has no name until it is complete, and however the process ends, nothing of it stays.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    name: SealedFile,
}

impl PartFile {
    /// Begins the file for `path`, beside it.
    ///
    /// # Errors
    /// The system's; also if something other than a regular file is there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut part = path.to_owned().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        // Renaming would replace a device, and fail for a folder at the end of the run.
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("not a regular file"));
        }
        let nameless = nameless(folder(path))?;
        let named = nameless.is_none();
        let file = nameless.map_or_else(|| File::create(&part), Ok)?;
        Ok(Self { file, name: SealedFile { path: path.to_owned(), part, named } })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.name.path
    }

    /// Fills it, and gives it its name; the size in bytes.
    ///
    /// # Errors
    /// The system's, and those of `write`.
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

    /// To write to it; [`PartFile::seal`] ends that.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes everything down to the disk and closes the file, complete but for its name: `.part` is appended to it until
    /// [`SealedFile::publish`].
    ///
    /// # Errors
    /// The system's.
    pub fn seal(mut self) -> io::Result<SealedFile> {
        self.file.sync_all()?;
        self.link()?;
        Ok(self.name)
    }

    /// The other name: a file without one cannot replace what has it.
    fn link(&mut self) -> io::Result<()> {
        if self.name.named {
            return Ok(());
        }
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let link = || rustix::fs::linkat(CWD, own.as_str(), CWD, &self.name.part, AtFlags::SYMLINK_FOLLOW);
        match link() {
            // Of a run that was killed, or on a file system that had no nameless files.
            Err(Errno::EXIST) => {
                std::fs::remove_file(&self.name.part)?;
                link()?;
            }
            other => other?,
        }
        self.name.named = true;
        Ok(())
    }
}

/// A file in `folder` that has no name and goes when it is closed; none where there are no such files, or no way to name them.
fn nameless(folder: &Path) -> io::Result<Option<File>> {
    if !Path::new("/proc/self/fd").exists() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        // What file systems without them say, and kernels that took the flag for something else.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The folder that a path is in.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A complete file under another name: of many, all can be sealed before the first one is published.
#[derive(Debug)]
pub struct SealedFile {
    path: PathBuf,
    part: PathBuf,
    /// Whether it is under the other name.
    named: bool,
}

impl SealedFile {
    /// Gives it its name.
    ///
    /// # Errors
    /// The system's.
    pub fn publish(mut self) -> io::Result<()> {
        std::fs::rename(&self.part, &self.path)?;
        self.named = false;
        Ok(())
    }
}

impl Drop for SealedFile {
    fn drop(&mut self) {
        if self.named {
            // Nothing of a run that ended early is worth keeping; that it cannot be removed is not worth an error.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}
