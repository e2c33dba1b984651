//! Model files mapped into memory, and the share of them in the page cache.

use crate::error::BackendError;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use terrace_model::{ByteSize, Extent};
use terrace_platform::memory::page_size;
use terrace_platform::{bus_error, file_map, input_file};

/// Number and size in bytes of the samples that estimate how much of a file the page cache holds.
/// The cache fills and empties in far longer stretches, and checking every page of a model would
/// take 0.1 s.
const SAMPLES: usize = 256;
const SAMPLE: usize = 256 << 10;

/// Bytes populated by one call: 2 ms of a fast disk, which bounds the time to stop, and enough for
/// the kernel to read ahead and make large pages.
const POPULATE: usize = 4 << 20;

/// One file, mapped for reading.
struct FileMap {
    path: PathBuf,
    map: file_map::FileMap,
}

impl FileMap {
    fn open(path: &Path) -> Result<Self, BackendError> {
        let failed = |source| BackendError::Map { path: path.into(), source };
        let (file, len) = input_file::open(path).map_err(failed)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(Self { path: path.into(), map: file_map::FileMap::of(&file, len).map_err(failed)? })
    }

    /// Number of pages found in the page cache, and number of pages checked. For a file that this
    /// user may not write to, the kernel reports all pages as present.
    fn cached(&self) -> (usize, usize) {
        let page = page_size();
        let mut pages = [0u8; SAMPLE / 4096];
        let (mut cached, mut seen) = (0, 0);
        let distance = (self.map.size() / SAMPLES).max(SAMPLE) / page * page;
        for offset in (0..self.map.size()).step_by(distance) {
            let len = SAMPLE.min(self.map.size() - offset);
            let pages = &mut pages[..len.div_ceil(page)];
            let told = self.map.cached(offset, len, pages);
            seen += pages.len();
            cached += pages.iter().filter(|&&page| told && page & 1 != 0).count();
        }
        (cached, seen)
    }

    /// Brings the file into memory and into the page table, in order. A range that cannot be read
    /// is skipped; computing from it will fail.
    fn populate(&self, stop: &AtomicBool) {
        for offset in (0..self.map.size()).step_by(POPULATE) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let len = POPULATE.min(self.map.size() - offset);
            self.map.populate(offset, len);
        }
    }
}

impl Drop for FileMap {
    // Buffers with tensors that point into the mapping, and the thread that populates it, keep the
    // `FileMaps` alive.
    fn drop(&mut self) {
        bus_error::forget(self.map.base().as_ptr() as usize);
    }
}

/// All files of a model, mapped. Nothing is read until it is accessed.
pub struct FileMaps(Vec<FileMap>);

/// A thread that brings mapped files into memory. Dropping this ends and joins it.
pub struct Populating {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FileMaps {
    /// Sets the hint that the process prints when a mapped file can no longer be read, which ends
    /// it. Only the first call has an effect.
    pub fn advise_on_failure(hint: &'static str) {
        bus_error::advise(hint);
    }

    /// Maps the files, in the order of the model's file indices.
    ///
    /// # Errors
    /// [`BackendError::Map`].
    pub fn open(paths: &[PathBuf]) -> Result<Self, BackendError> {
        paths.iter().map(|path| FileMap::open(path)).collect::<Result<_, _>>().map(Self)
    }

    /// Estimates the share of the files in the page cache, from 0 to 1. Files that this user may
    /// not write to count as cached.
    pub fn cached_share(&self) -> f64 {
        let (cached, seen) = self.0.iter().map(FileMap::cached).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        if seen == 0 { 1.0 } else { cached as f64 / seen as f64 }
    }

    /// Brings the files into memory in the background, while they may already be in use.
    ///
    /// # Errors
    /// [`BackendError::Thread`].
    pub(crate) fn populate_behind(self: &Arc<Self>) -> Result<Populating, BackendError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (maps, told) = (Arc::clone(self), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("populate".into())
            .spawn(move || maps.0.iter().for_each(|map| map.populate(&told)))
            .map_err(BackendError::Thread)?;
        Ok(Populating { stop, thread: Some(thread) })
    }

    /// Watches the files: from now on, a page that cannot be read ends the process with one line
    /// that names the file.
    pub(crate) fn watch(&self) {
        for map in &self.0 {
            bus_error::watch(map.map.base().as_ptr() as usize, map.map.size(), &map.path);
        }
    }

    /// Address of the bytes of `extent`.
    ///
    /// # Errors
    /// [`BackendError::MapTooShort`] if the file was truncated after its header was read.
    pub(crate) fn address(&self, extent: Extent, name: &str) -> Result<*mut c_void, BackendError> {
        let map = &self.0[extent.file.0 as usize];
        if extent.offset.checked_add(extent.len).is_none_or(|end| end > map.map.size() as u64) {
            return Err(BackendError::MapTooShort {
                tensor: name.into(),
                path: map.path.clone(),
                offset: extent.offset,
                size: ByteSize(extent.len),
                len: ByteSize(map.map.size() as u64),
            });
        }
        let offset = usize::try_from(extent.offset).expect("within a mapping");
        // SAFETY: within the mapping.
        Ok(unsafe { map.map.base().as_ptr().add(offset).cast() })
    }
}

impl Drop for Populating {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that could panic, and a panic would need no handling.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use terrace_model::FileIndex;
    use terrace_platform::file::{Advice, advise};

    fn file(len: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&(0..len).map(|i| (i % 251) as u8).collect::<Vec<_>>()).unwrap();
        file.as_file().sync_all().unwrap();
        file
    }

    #[test]
    fn addresses_are_those_of_the_bytes() {
        let files = [file(10_000), file(70_000)];
        let maps = FileMaps::open(&files.each_ref().map(|f| f.path().to_owned())).unwrap();
        for (index, offset) in [(0, 9_999), (1, 0), (1, 65_537)] {
            let extent = Extent { file: FileIndex(index), offset, len: 1 };
            let address = maps.address(extent, "t").unwrap().cast::<u8>();
            // SAFETY: one byte within the mapping.
            assert_eq!(u64::from(unsafe { *address }), offset % 251);
        }
        for (offset, len) in [(9_999, 2), (u64::MAX, 2), (10_001, 0)] {
            let error = maps.address(Extent { file: FileIndex(0), offset, len }, "blk.0.x").unwrap_err();
            assert!(error.to_string().contains("blk.0.x"), "{error}");
        }
        assert!(
            FileMaps::open(&["/nonexistent/m.gguf".into()]).is_err_and(|e| e.to_string().contains("m.gguf"))
        );
    }

    #[test]
    fn the_share_in_the_page_cache_follows_what_is_read() {
        let file = file(40 << 20);
        advise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        let maps = Arc::new(FileMaps::open(&[file.path().to_owned()]).unwrap());
        // Some file systems are in memory, where no page can be evicted.
        assert!(maps.cached_share() <= 1.0);
        let mut populating = maps.populate_behind().unwrap();
        populating.thread.take().unwrap().join().unwrap();
        assert!(maps.cached_share() > 0.9, "{}", maps.cached_share());
        // Dropping it stops it.
        drop(maps.populate_behind().unwrap());
    }
}
