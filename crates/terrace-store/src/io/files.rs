//! Opening the model's files, and checking whether direct I/O works on them.

use crate::buffers::Mapping;
use crate::choice::DirectChoice;
use crate::error::StoreError;
use crate::ranges::{GRANULE, Place};
use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_model::{Extent, FileIndex};
use terrace_platform::file::{self, Advice};
use terrace_platform::input_file;

/// One open model file.
#[derive(Debug)]
pub(crate) struct ModelFd {
    pub path: PathBuf,
    /// Length in bytes when it was opened.
    pub len: u64,
    /// True if it is read through the page cache.
    pub buffered: bool,
    /// True if it was closed, so that its index can be reused.
    closed: bool,
    /// `None` in simulations.
    file: Option<File>,
}

/// All files of a model.
#[derive(Debug)]
pub(crate) struct Files {
    pub all: Vec<ModelFd>,
    /// Copies of some of them.
    pub replicas: Vec<ModelFd>,
    /// True if the descriptors of the files that were opened first are open for direct I/O: all or
    /// none.
    pub direct: bool,
    /// Alignment of offsets, lengths and addresses in bytes; 1 if buffered.
    pub align: u64,
    /// Why reads are direct or buffered, in words.
    pub reason: String,
}

impl Files {
    /// Returns a descriptor by its number among the [`handles`](Self::handles).
    pub fn descriptor(&self, number: u32) -> &ModelFd {
        let number = number as usize;
        self.all.get(number).unwrap_or_else(|| &self.replicas[number - self.all.len()])
    }

    /// Duplicates the descriptors for an engine: those of the files, then those of the replicas.
    pub fn handles(&self) -> Result<Vec<File>, StoreError> {
        // The indices are positions, so no file may be left out.
        let dup = |fd: &ModelFd| {
            let file = fd.file.as_ref().ok_or_else(|| io::Error::other("the file is simulated"));
            file.and_then(File::try_clone)
                .map_err(|source| StoreError::Open { path: fd.path.clone(), source })
        };
        self.all.iter().chain(&self.replicas).map(dup).collect()
    }

    /// Opens another file. It is read as the others if possible, otherwise through the page cache.
    pub fn add(&mut self, path: PathBuf) -> Result<FileIndex, StoreError> {
        let mut fd = open(path)?;
        if self.direct
            && let Err(reason) = fd.read_directly(self.align)?
        {
            tracing::debug!("{} is read through the page cache: {reason}", fd.path.display());
        }
        let free = self.all.iter().position(|fd| fd.closed);
        let index = free.unwrap_or(self.all.len());
        match free {
            Some(free) => self.all[free] = fd,
            None => self.all.push(fd),
        }
        Ok(FileIndex(u32::try_from(index).expect("descriptors are fewer")))
    }

    /// Closes a file, so that its index can be reused.
    pub fn remove(&mut self, index: FileIndex) {
        self.close(index, file::open_null());
    }

    /// Marks a file as closed. Its place among the handles is kept by `placeholder` or, without
    /// one, by the file itself.
    fn close(&mut self, index: FileIndex, placeholder: io::Result<File>) {
        let Some(fd) = self.all.get_mut(index.index()) else { return };
        (fd.closed, fd.len) = (true, 0);
        match placeholder {
            Ok(placeholder) => fd.file = Some(placeholder),
            Err(error) => {
                tracing::debug!(%error, "{} stays open until another file takes its place", fd.path.display())
            }
        }
    }

    /// Checks that the extent lies within its file, as long as the file was when it was opened.
    pub fn check(&self, extent: Extent, name: &dyn fmt::Display) -> Result<(), StoreError> {
        let bad = |reason: String| StoreError::BadExtent { tensor: name.to_string(), reason };
        let Some(file) = self.all.get(extent.file.index()) else {
            return Err(bad(format!(
                "it lies in file {}, but there are {} files",
                extent.file,
                self.all.len()
            )));
        };
        if extent.len == 0 {
            return Err(bad("it has no bytes".into()));
        }
        if extent.offset.checked_add(extent.len).is_none_or(|end| end > file.len) {
            return Err(StoreError::OutsideFile {
                path: file.path.clone(),
                tensor: name.to_string(),
                offset: extent.offset,
                len: extent.len,
                file_len: file.len,
            });
        }
        Ok(())
    }

    /// Opens copies of files, by index. They are read as the files if possible, otherwise through
    /// the page cache.
    pub fn add_replicas(
        &mut self,
        replicas: impl Iterator<Item = (FileIndex, PathBuf)>,
        choice: DirectChoice,
    ) -> Result<(), StoreError> {
        for (original, path) in replicas {
            let mut fd = open(path)?;
            let expected = self.all.get(original.index()).map_or(0, |original| original.len);
            if fd.len != expected {
                let reason =
                    format!("{} has {} bytes, not {expected} like its original", fd.path.display(), fd.len);
                return Err(StoreError::Config { setting: "replica", reason });
            }
            if self.direct {
                match fd.read_directly(GRANULE)? {
                    Ok(align) => self.align = self.align.max(align),
                    Err(reason) if choice == DirectChoice::On => {
                        return Err(StoreError::Direct { path: fd.path, reason });
                    }
                    Err(reason) => {
                        tracing::debug!("{} is read through the page cache: {reason}", fd.path.display());
                    }
                }
            }
            self.replicas.push(fd);
        }
        Ok(())
    }

    /// Drops the extent's pages from the page cache, as far as nothing else needs them, so that the
    /// next read gets them from the disk, whichever copy it reads.
    pub fn drop_cached(&self, extent: Extent) {
        let original = self.all.get(extent.file.index());
        for file in original.into_iter().chain(&self.replicas).filter_map(|fd| fd.file.as_ref()) {
            drop_cached(file, extent);
        }
    }

    /// Describes files of these lengths that do not exist, read in multiples of `align`.
    pub fn simulated(lengths: &[u64], align: u64) -> Self {
        let fd = |(index, len): (usize, &u64)| ModelFd {
            path: format!("file {index} of the trace").into(),
            len: *len,
            buffered: align == 1,
            closed: false,
            file: None,
        };
        let all = lengths.iter().enumerate().map(fd).collect();
        Self { all, replicas: Vec::new(), direct: align > 1, align, reason: "nothing is read".into() }
    }
}

#[cfg(test)]
impl Files {
    /// Adds replicas that do not exist.
    pub fn simulate_replicas(&mut self, count: usize) {
        let fd = |_| ModelFd { path: "replica".into(), len: 0, buffered: false, closed: false, file: None };
        self.replicas.extend((0..count).map(fd));
    }
}

impl ModelFd {
    /// Turns direct I/O on if it works with some alignment up to `most`, and returns that alignment.
    /// If not, the file is buffered, and the reason is returned.
    fn read_directly(&mut self, most: u64) -> Result<Result<u64, String>, StoreError> {
        let Some(file) = &mut self.file else { return Ok(Err("it is simulated".into())) };
        let reason = match direct_alignment(file) {
            Ok(align) if align <= most => {
                self.buffered = false;
                return Ok(Ok(align));
            }
            Ok(align) => format!("it needs an alignment of {align} bytes"),
            Err(reason) => reason,
        };
        self.read_buffered()?;
        Ok(Err(reason))
    }

    /// Turns direct I/O off, which a trial may have left on.
    fn read_buffered(&mut self) -> Result<(), StoreError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file::set_direct(file, false).map_err(|source| StoreError::Open { path: self.path.clone(), source })
    }
}

/// Drops the extent's pages of one file from the page cache. Only whole pages are dropped.
fn drop_cached(file: &File, extent: Extent) {
    let from = extent.offset - extent.offset % GRANULE;
    let len = NonZeroU64::new(extent.end().next_multiple_of(GRANULE) - from);
    // If this fails, the read sees what is cached.
    let _ = file::advise(file, from, len, Advice::DontNeed);
}

/// Opens the files as `choice` says.
pub(crate) fn open_files(paths: Vec<PathBuf>, choice: DirectChoice) -> Result<Files, StoreError> {
    let mut all = paths.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let replicas = Vec::new();
    if choice == DirectChoice::Off {
        let reason = "buffered, as requested".into();
        return Ok(Files { all, replicas, direct: false, align: 1, reason });
    }
    let mut align = 1;
    for index in 0..all.len() {
        let fd = &mut all[index];
        let Some(file) = &mut fd.file else { continue };
        match direct_alignment(file) {
            Ok(found) => align = align.max(found),
            Err(reason) if choice == DirectChoice::On => {
                return Err(StoreError::Direct { path: fd.path.clone(), reason });
            }
            Err(reason) => {
                let reason = format!(
                    "buffered, because direct I/O is not possible on {}: {reason}",
                    fd.path.display()
                );
                tracing::debug!("{reason}");
                all.iter_mut().try_for_each(ModelFd::read_buffered)?;
                return Ok(Files { all, replicas, direct: false, align: 1, reason });
            }
        }
    }
    all.iter_mut().for_each(|fd| fd.buffered = false);
    // Without files the alignment is 1.
    Ok(Files {
        replicas,
        direct: true,
        align,
        reason: format!("direct, because a trial read aligned to {align} bytes worked"),
        all,
    })
}

fn open(path: PathBuf) -> Result<ModelFd, StoreError> {
    let failed = |source| StoreError::Open { path: path.clone(), source };
    let (file, len) = input_file::open(&path).map_err(failed)?;
    let file = file::shared(file).map_err(failed)?;
    Ok(ModelFd { len, path, buffered: true, closed: false, file: Some(file) })
}

/// Turns direct I/O on for the descriptor, and returns the alignment that it needs, or why it does
/// not work.
pub(crate) fn direct_alignment(file: &mut File) -> Result<u64, String> {
    file::set_direct(file, true).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => "the file system does not support it".to_owned(),
        io::ErrorKind::Unsupported => "the system has none".to_owned(),
        _ => error.to_string(),
    })?;
    let mapping = Mapping::new(2 * GRANULE as usize, false).map_err(|error| error.to_string())?;
    let candidates = match file::stated_alignment(file) {
        Some(0) if reads_unaligned(file, &mapping) => {
            return Err("the file system refuses it for this file".into());
        }
        // An emulator of the system may pass on that an alignment is stated, and not which.
        Some(0) | None => vec![512, GRANULE],
        Some(align) if align > GRANULE || !align.is_power_of_two() => {
            return Err(format!("it needs an alignment of {align} bytes, which pages do not have"));
        }
        Some(align) => vec![align],
    };
    let mut failure = String::new();
    for align in candidates {
        // This address and offset do not satisfy any coarser alignment by chance.
        let window = mapping.window(Place { offset: 0, len: 2 * GRANULE }, align, align);
        match window.target().fill(file, align) {
            Ok(_) => return Ok(align),
            Err(error) => failure = format!("a trial read of {align} bytes failed: {error}"),
        }
    }
    Err(failure)
}

/// Returns true if a byte is read to an odd address, which no disk can do: file systems that have no direct I/O for
/// a file, because they encrypt or journal its data, read it through the page cache all the same.
fn reads_unaligned(file: &File, mapping: &Arc<Mapping>) -> bool {
    let window = mapping.window(Place { offset: 0, len: GRANULE }, 1, 1);
    window.target().fill(file, 0).is_ok_and(|read| read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_platform::file::Positioned;

    #[test]
    fn a_file_that_is_closed_without_a_placeholder_keeps_its_place() {
        let dir = tempfile::TempDir::new().unwrap();
        let paths = ["a", "b", "c"].map(|name| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            path
        });
        let mut files = open_files(paths.to_vec(), DirectChoice::Off).unwrap();
        // As if the process had no file descriptors left.
        files.close(FileIndex(1), Err(io::Error::other("no more files")));
        let handles = files.handles().unwrap();
        assert_eq!(handles.len(), 3);
        let mut byte = [0];
        handles[2].read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte, *b"c");
        // The closed file has no bytes, and its index is reused for the next file.
        let extent = Extent { file: FileIndex(1), offset: 0, len: 1 };
        assert!(files.check(extent, &"t").is_err());
        let again = files.add(paths[0].clone()).unwrap();
        assert_eq!(again, FileIndex(1));
        files.handles().unwrap()[1].read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte, *b"a");
    }
}
