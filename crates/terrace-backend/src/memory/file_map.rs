//! Model files mapped into memory, and the share of them in the page cache.

use crate::error::BackendError;
use std::ffi::c_void;
use std::ops::Range;
use std::path::{Path, PathBuf};
use terrace_model::{ByteSize, Extent};
use terrace_platform::memory::page_size;
use terrace_platform::{bus_error, file_map, input_file};

/// Number and size in bytes of the samples that estimate how much of a file the page cache holds.
/// The cache fills and empties in far longer stretches, and checking every page of a model would
/// take 0.1 s.
const SAMPLES: usize = 256;
const SAMPLE: usize = 256 << 10;

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

    /// Number of pages found in the page cache, and number of pages that the system told about. For a file that this
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
            if told {
                seen += pages.len();
                cached += pages.iter().filter(|&&page| page & 1 != 0).count();
            }
        }
        (cached, seen)
    }
}

impl Drop for FileMap {
    // Buffers with tensors that point into the mapping, and the thread that reads it ahead, keep the
    // `FileMaps` alive.
    fn drop(&mut self) {
        bus_error::forget(self.map.base().as_ptr() as usize);
    }
}

/// All files of a model, mapped. Nothing is read until it is accessed.
pub struct FileMaps(Vec<FileMap>);

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

    /// Estimates the share of the files in the page cache, from 0 to 1; `None` if the system does not tell. Files that
    /// this user may not write to count as cached, empty ones are.
    pub fn cached_share(&self) -> Option<f64> {
        let (cached, seen) = self.0.iter().map(FileMap::cached).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let empty = self.sizes().all(|size| size == 0);
        if seen == 0 { empty.then_some(1.0) } else { Some(cached as f64 / seen as f64) }
    }

    /// Sizes of the files in bytes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|map| map.map.size())
    }

    /// Addresses of the files, to the ends of their last pages.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let start = |map: &FileMap| map.map.base().as_ptr() as usize;
        self.0.iter().map(move |map| start(map)..start(map) + map.map.size().next_multiple_of(page_size()))
    }

    /// The file and the offset at which `len` bytes at an address are mapped, if they are.
    pub(crate) fn place_of(&self, address: *const u8, len: usize) -> Option<(usize, usize)> {
        let offset = |map: &FileMap| (address as usize).checked_sub(map.map.base().as_ptr() as usize);
        let (file, offset) = self
            .0
            .iter()
            .enumerate()
            .find_map(|(file, map)| Some((file, offset(map)?)).filter(|&(_, at)| at < map.map.size()))?;
        (len <= self.0[file].map.size() - offset).then_some((file, offset))
    }

    /// Has a range of a file read, and does not wait for it. `offset` begins a page; what lies beyond the end is ignored.
    pub(crate) fn will_need(&self, file: usize, offset: usize, len: usize) {
        let map = &self.0[file].map;
        let len = len.min(map.size().saturating_sub(offset));
        if len > 0 {
            map.will_need(offset, len);
        }
    }

    /// Brings a range of a file into memory and into the page table. What cannot be read is skipped; computing from it
    /// will fail.
    pub(crate) fn populate(&self, file: usize, range: Range<usize>) {
        let map = &self.0[file].map;
        let start = range.start / page_size() * page_size();
        let end = range.end.min(map.size());
        if start < end {
            map.populate(start, end - start);
        }
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::Write;
    use terrace_model::FileIndex;
    use terrace_platform::file::{Advice, advise};

    /// A file of `len` bytes on disk.
    pub fn file(len: usize) -> tempfile::NamedTempFile {
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
        let maps = FileMaps::open(&[file.path().to_owned()]).unwrap();
        // Some file systems are in memory, where no page can be evicted.
        assert!(maps.cached_share().unwrap() <= 1.0);
        maps.populate(0, 5000..40 << 20);
        let cached = maps.cached_share().unwrap();
        assert!(cached > 0.9, "{cached}");
    }
}
