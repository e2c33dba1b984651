//! Checking how much of a file the page cache holds, and dropping it from there.

use std::fs::File;
use std::io;
use terrace_model::PAGE;
use terrace_platform::file::{Advice, advise, is_cached};

/// Number of pages that are checked.
const PLACES: u64 = 256;

/// Asks the kernel to drop the file's pages; those that are dirty or mapped stay.
pub(super) fn forget(file: &File) -> io::Result<()> {
    advise(file, 0, None, Advice::DontNeed)
}

/// Estimates from a sample which share of the file's pages the page cache holds, without reading
/// from the device; `None` if the file system does not support that.
pub(super) fn held(file: &File, len: u64) -> Option<f64> {
    let pages = len.div_ceil(PAGE).max(1);
    let places = pages.min(PLACES);
    let mut hits = 0u64;
    for index in 0..places {
        let offset = index * pages / places * PAGE;
        hits += u64::from(is_cached(file, offset).ok()?);
    }
    Some(hits as f64 / places as f64)
}
