//! Mapped files are read ahead of their use, at the disk's rate: first what a graph is about to use, meanwhile and
//! afterwards everything else.
//!
//! A page that is missing when a kernel reads it stops the thread for one small read, and the kernel's guess of what else to
//! read goes to experts that nobody has chosen.

use crate::error::BackendError;
use crate::memory::file_map::FileMaps;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use terrace_model::{Extent, ModelFile, TensorInfo};

/// Bytes of one request. The kernel cuts off what is longer than a device's largest transfer or its read-ahead,
/// 128 KiB on most systems.
const REQUEST: usize = 128 << 10;

/// Bytes brought into the page table by one call: 2 ms of a fast disk, which bounds the time to stop.
const PIECE: usize = 4 << 20;

/// Pieces requested before the one that is brought into the page table: enough for a fast disk, and little to wait for
/// where a graph asks for something else.
const AHEAD: usize = 2;

/// What is still to be read of a model's mapped files.
pub struct ReadAhead {
    maps: Arc<FileMaps>,
    /// By file, a bit for each [`REQUEST`] bytes that have been asked for.
    asked: Vec<Box<[AtomicU64]>>,
    /// Everything has been read.
    complete: AtomicBool,
    /// Ends the thread.
    stop: AtomicBool,
}

/// A thread that reads mapped files. Dropping this ends and joins it.
pub struct Reading {
    ahead: Arc<ReadAhead>,
    thread: Option<JoinHandle<()>>,
}

/// A range of a mapped file.
#[derive(Clone)]
struct Part {
    file: usize,
    range: Range<usize>,
}

impl ReadAhead {
    fn new(maps: Arc<FileMaps>) -> Arc<Self> {
        let bits = |size: usize| size.div_ceil(REQUEST).div_ceil(64);
        let asked = maps.sizes().map(|size| (0..bits(size)).map(|_| AtomicU64::new(0)).collect()).collect();
        Arc::new(Self { maps, asked, complete: AtomicBool::new(false), stop: AtomicBool::new(false) })
    }

    /// Returns true if nothing is left to be read.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// Has bytes at an address read if nobody has asked for them yet, and does not wait for them. Addresses outside of
    /// the files are ignored: weights that were replaced lie elsewhere.
    pub fn want(&self, address: *const u8, len: usize) {
        if self.is_complete() {
            return;
        }
        if let Some((file, offset)) = self.maps.place_of(address, len) {
            self.ask(file, offset..offset + len);
        }
    }

    /// Asks for what has not been asked for of a range of a file.
    fn ask(&self, file: usize, range: Range<usize>) {
        for number in range.start / REQUEST..range.end.div_ceil(REQUEST) {
            let bit = 1 << (number % 64);
            // Relaxed: who sets a bit asks; nothing else is passed on.
            if self.asked[file][number / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                self.maps.will_need(file, number * REQUEST, REQUEST);
            }
        }
    }

    /// Reads these parts.
    fn read(&self, parts: &[Part]) {
        let mut asked = pieces(parts);
        asked.by_ref().take(AHEAD).for_each(|part| self.ask(part.file, part.range));
        for part in pieces(parts) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if let Some(next) = asked.next() {
                self.ask(next.file, next.range);
            }
            self.maps.populate(part.file, part.range);
        }
        self.complete.store(true, Ordering::Relaxed);
    }
}

impl Reading {
    /// Starts to bring a model's files into memory, while they may already be in use: first what every token uses,
    /// then the experts.
    ///
    /// # Errors
    /// [`BackendError::Thread`].
    pub fn start(maps: Arc<FileMaps>, model: &ModelFile) -> Result<Self, BackendError> {
        let ahead = ReadAhead::new(maps);
        let reader = Arc::clone(&ahead);
        let parts = parts_in_order(model);
        let thread = std::thread::Builder::new()
            .name("read ahead".into())
            .spawn(move || reader.read(&parts))
            .map_err(BackendError::Thread)?;
        Ok(Self { ahead, thread: Some(thread) })
    }

    /// What it still has to read.
    pub const fn ahead(&self) -> &Arc<ReadAhead> {
        &self.ahead
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.ahead.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that could panic, and a panic would need no handling.
            let _ = thread.join();
        }
    }
}

/// The tensors of a model in the order of their use by the first token: matrices of layers, those of no layer (the output's),
/// then stacks of experts, of which it uses a few.
fn parts_in_order(model: &ModelFile) -> Vec<Part> {
    let key = |tensor: &TensorInfo| {
        let stack = tensor.shape.dims() > 2;
        (stack, tensor.layer().map_or(u32::MAX, |layer| layer.0), tensor.extent.file, tensor.extent.offset)
    };
    let mut tensors: Vec<&TensorInfo> = model.tensors.iter().collect();
    tensors.sort_by_key(|tensor| key(tensor));
    tensors.into_iter().filter_map(|tensor| part(tensor.extent)).collect()
}

/// `None` for extents that no mapping could hold.
fn part(extent: Extent) -> Option<Part> {
    let start = usize::try_from(extent.offset).ok()?;
    let end = start.checked_add(usize::try_from(extent.len).ok()?)?;
    Some(Part { file: usize::try_from(extent.file.0).ok()?, range: start..end })
}

fn pieces(parts: &[Part]) -> impl Iterator<Item = Part> {
    parts.iter().flat_map(|Part { file, range }| {
        let end = range.end;
        let piece = move |start: usize| Part { file: *file, range: start..end.min(start + PIECE) };
        range.clone().step_by(PIECE).map(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::file_map::tests::file;
    use std::path::PathBuf;
    use terrace_model::FileIndex;
    use terrace_platform::file::{Advice, advise};

    fn maps(files: &[tempfile::NamedTempFile]) -> Arc<FileMaps> {
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
        for file in files {
            advise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        }
        Arc::new(FileMaps::open(&paths).unwrap())
    }

    fn whole(file: u32, len: u64) -> Part {
        part(Extent { file: FileIndex(file), offset: 0, len }).unwrap()
    }

    #[test]
    fn all_parts_are_read_once_they_are_complete() {
        let files = [file(40 << 20), file(PIECE + 5)];
        let ahead = ReadAhead::new(maps(&files));
        // What a part skips is not asked for.
        let skipping = Part { file: 0, range: PIECE..40 << 20 };
        ahead.read(&[whole(1, PIECE as u64 + 5), skipping]);
        assert!(ahead.is_complete());
        assert_eq!(ahead.asked[0][0].load(Ordering::Relaxed), u64::MAX << (PIECE / REQUEST));
        assert_eq!(ahead.asked[1][0].load(Ordering::Relaxed).count_ones() as usize, PIECE / REQUEST + 1);
        let cached = ahead.maps.cached_share().unwrap();
        assert!(cached > 0.85, "{cached}");
    }

    #[test]
    fn what_is_wanted_is_asked_for_once_and_where_it_lies() {
        let files = [file(1 << 20), file(3 << 20)];
        let ahead = ReadAhead::new(maps(&files));
        let extent = Extent { file: FileIndex(1), offset: 300_000, len: 200_000 };
        let address = ahead.maps.address(extent, "t").unwrap().cast::<u8>().cast_const();
        ahead.want(address, 200_000);
        let bits = |file: usize| ahead.asked[file][0].load(Ordering::Relaxed);
        // 300,000 to 500,000 lie in requests 2 and 3.
        assert_eq!((bits(0), bits(1)), (0, 0b1100));
        ahead.want(address, 1);
        ahead.want(std::ptr::from_ref(&ahead).cast(), 1);
        // Longer than what is left of the file.
        ahead.want(address, 4 << 20);
        assert_eq!((bits(0), bits(1)), (0, 0b1100));
        ahead.complete.store(true, Ordering::Relaxed);
        ahead.want(address, 1 << 20);
        assert_eq!(bits(1), 0b1100);
    }

    #[test]
    fn a_thread_that_is_stopped_ends() {
        let files = [file(1 << 20)];
        let ahead = ReadAhead::new(maps(&files));
        ahead.stop.store(true, Ordering::Relaxed);
        ahead.read(&[whole(0, 1 << 20)]);
        assert!(!ahead.is_complete());
    }
}
