//! Checking how much of a file the page cache holds, and dropping it from there.

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::IoSliceMut;
use terrace_model::PAGE;

/// Number of pages that are checked.
const PLACES: u64 = 256;

/// Asks the kernel to drop the file's pages; those that are dirty or mapped stay.
pub(super) fn forget(file: &File) -> rustix::io::Result<()> {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
}

/// Estimates from a sample which share of the file's pages the page cache holds, without reading
/// from the device; `None` if the file system does not support that.
pub(super) fn held(file: &File, len: u64) -> Option<f64> {
    let pages = len.div_ceil(PAGE).max(1);
    let places = pages.min(PLACES);
    let mut hits = 0u64;
    for index in 0..places {
        let mut byte = [0];
        let offset = index * pages / places * PAGE;
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
            Ok(_) => hits += 1,
            Err(Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
    Some(hits as f64 / places as f64)
}
