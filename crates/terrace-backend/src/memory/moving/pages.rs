//! Pages of mapped files, and of what takes their places.

use super::mover::Unmoved;
use std::ops::Range;
use terrace_platform::memory::page_size;
use terrace_platform::own_pages::OwnPages;
use terrace_platform::{control_group, memory};

/// Bytes that are copied at a time: some milliseconds, which bound the time to stop. As many pieces are mappings, of which Linux
/// gives a process 65,530.
pub(super) const PIECE: usize = 16 << 20;
/// Memory left to others: an eighth of all, and at least so much. They cannot have these pages back, as they could those of a file.
const RESERVE: u64 = 512 << 20;

/// Memory for a range, if others keep enough.
pub(super) fn own_pages(range: &Range<usize>) -> Result<OwnPages, Unmoved> {
    let room =
        memory::available().unwrap_or(u64::MAX).min(control_group::tightest_room().unwrap_or(u64::MAX));
    let reserve = RESERVE.max(memory::total().unwrap_or(0) / 8);
    if room < reserve + range.len() as u64 {
        tracing::debug!(room, "no memory to move weights to");
        return Err(Unmoved);
    }
    OwnPages::like(range.start, range.len()).map_err(|error| {
        tracing::debug!(%error, "no memory to move weights to");
        Unmoved
    })
}

/// The whole pages within a range.
pub(super) fn whole_pages(range: Range<usize>) -> Range<usize> {
    let page = page_size();
    let start = range.start.next_multiple_of(page);
    start..(range.end / page * page).max(start)
}

/// Parts of a range that end where pieces of all memory do, so that large pages stay whole.
pub(super) fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = (at + 1).next_multiple_of(PIECE).min(range.end);
        let piece = at..end;
        at = end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The parts of some ranges of whole pages that are in none of `left_out`, which are sorted.
pub(super) fn between(
    ranges: impl Iterator<Item = Range<usize>>,
    left_out: &[Range<usize>],
) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    for range in ranges {
        let mut start = range.start;
        for out in left_out.iter().filter(|out| out.start < range.end && range.start < out.end) {
            parts.push(start..out.start);
            start = out.end;
        }
        parts.push(start..range.end);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Copies bytes from an address.
///
/// # Safety
/// There are so many bytes, which nothing writes to.
pub(super) unsafe fn copy(address: usize, to: &mut [u8]) {
    // SAFETY: the caller's contract; new memory is elsewhere.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len()) };
}

/// Writes bytes from byte `at` on of what some parts are together.
pub(super) fn write_across(at: usize, bytes: &[u8], parts: [&mut [u8]; 3]) {
    let mut start = 0;
    for part in parts {
        let end = start + part.len();
        let (from, to) = (at.max(start), (at + bytes.len()).min(end));
        if from < to {
            part[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
        }
        start = end;
    }
}

/// Reads all words from an address on.
///
/// # Safety
/// There are so many bytes, which nothing writes to.
pub(super) unsafe fn read(address: usize, len: usize) -> u64 {
    let mut sums = [0u64; 8];
    for line in (address..address + len / 64 * 64).step_by(64) {
        // SAFETY: the caller's contract.
        let words = unsafe { (line as *const [u64; 8]).read_unaligned() };
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= word);
    }
    sums.into_iter().fold(0, |all, sum| all ^ sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_between_what_is_left_out() {
        let of = |out: &[Range<usize>]| between([10..50, 60..90].into_iter(), out);
        assert_eq!(of(&[]), [10..50, 60..90]);
        assert_eq!(of(&[10..20, 20..30, 45..50, 70..71]), [30..45, 60..70, 71..90]);
        assert_eq!(of(&[10..50, 60..90]), [0..0; 0]);
        let some = PIECE * 3 + 5;
        let pieces: Vec<_> = pieces(some..some + 2 * PIECE).collect();
        let (first, second) = (4 * PIECE, 5 * PIECE);
        assert_eq!(pieces, [some..first, first..second, second..some + 2 * PIECE]);
    }

    #[test]
    fn bytes_are_written_across_parts() {
        let bytes: Vec<u8> = (1..=20).collect();
        for size in [1, 3, 7, 20] {
            let (mut a, mut b, mut c) = ([0; 4], [0; 11], [0; 5]);
            for (i, bytes) in bytes.chunks(size).enumerate() {
                write_across(i * size, bytes, [&mut a, &mut b, &mut c]);
            }
            assert_eq!([&a[..], &b, &c].concat(), bytes, "{size}");
        }
    }
}
