//! Checksums of what is being read.

use crate::checksums::contribution;
use crate::io::{Copies, REPLICAS};
use crate::slots::Failure;
use terrace_model::Extent;

/// The checksum of bytes of which some have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    /// Of the parts that have arrived.
    sum: u32,
    bytes: u64,
    /// The copies of the file that they came from, as bits.
    copies: u64,
}

impl Sum {
    /// Adds a part of `extent` from a copy of the file; `from` is its offset. Returns the checksum
    /// once all parts have been added.
    pub fn add(&mut self, extent: Extent, from: u64, part: &[u8], copy: u8) -> Option<u32> {
        self.copies |= 1 << copy;
        let len = part.len() as u64;
        self.sum ^= contribution(part, extent.end() - from - len);
        self.bytes += len;
        (self.bytes == extent.len).then_some(self.sum)
    }
}

/// State of a repeated read after a checksum mismatch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Again {
    /// The copies of the file that the wrong bytes came from, as bits.
    pub wrong: u64,
    /// The copies that are not read now.
    pub avoid: u64,
}

impl Again {
    /// Reads the original, or a replica if the original gave the wrong bytes.
    pub fn of(copies: &Copies, extent: Extent, sum: &Sum) -> Self {
        let only_original = sum.copies == 1 && copies.is_replicated(extent.file.0);
        Self { wrong: sum.copies, avoid: if only_original { 1 } else { REPLICAS } }
    }
}

/// A read of the caller with a known checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerSum {
    /// Its place in the file.
    pub extent: Extent,
    /// The checksum that it had at first.
    pub expected: u32,
    /// The bytes of it that have arrived.
    pub sum: Sum,
    /// The checksum that it has now, once all has arrived.
    pub found: Option<u32>,
    /// The repeated read, after a mismatch.
    pub again: Again,
}

impl CallerSum {
    /// Returns the failure if the bytes are not the expected ones.
    pub fn failure(&self) -> Option<Failure> {
        let (expected, found) = (self.expected, self.found?);
        (found != expected).then_some(Failure::Checksum { expected, found })
    }

    /// Returns the copies of the file that must not be read for it, as bits.
    pub fn avoid(&self) -> u64 {
        self.again.avoid
    }
}
