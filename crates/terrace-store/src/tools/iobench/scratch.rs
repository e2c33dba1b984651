//! Writing a temporary file to measure.

use super::error::IoBenchError;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_model::ByteSize;
use terrace_platform::file::{free_space, scratch};

/// Bytes written at a time.
const PIECE: usize = 4 << 20;
/// Bytes that stay free, because a full file system harms other programs.
const MARGIN: u64 = 64 << 20;

/// A nameless file in a directory, which vanishes with the process, however that ends.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Keeps the file there.
    _file: File,
    path: PathBuf,
}

impl Scratch {
    /// Writes `size` bytes that neither compress nor repeat, and syncs them to the device.
    /// `progress` gets the bytes written so far.
    pub fn write(
        dir: &Path,
        size: ByteSize,
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<Self, IoBenchError> {
        let failed = |source| IoBenchError::Write { dir: dir.into(), size, source };
        let free = ByteSize(free_space(dir).map_err(failed)?);
        let needed = ByteSize(size.0.saturating_add(MARGIN));
        if free < needed {
            return Err(IoBenchError::NoRoom { dir: dir.into(), size, needed, free });
        }
        let (mut file, path) = scratch(dir).map_err(failed)?;
        let mut random = fastrand::Rng::with_seed(size.0);
        let mut piece = vec![0; PIECE];
        let mut done = 0;
        while done < size.0 {
            random.fill(&mut piece);
            let len = usize::try_from(size.0 - done).map_or(PIECE, |left| left.min(PIECE));
            file.write_all(&piece[..len]).map_err(|source| match source.kind() {
                // Another program has taken the room meanwhile.
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => IoBenchError::NoRoom {
                    dir: dir.into(),
                    size,
                    needed: ByteSize(size.0 - done),
                    free: ByteSize::ZERO,
                },
                _ => failed(source),
            })?;
            done += len as u64;
            if progress(ByteSize(done)).is_break() {
                return Err(IoBenchError::Stopped);
            }
        }
        // Dirty pages would be written during the measurements, and cannot be dropped from the
        // cache.
        file.sync_all().map_err(failed)?;
        Ok(Self { _file: file, path })
    }

    /// Returns a path by which this process can open the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
