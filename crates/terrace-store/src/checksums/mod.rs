//! Checksums of the parts of a model's files, which reads are compared with.

mod crc;
mod file;

pub(crate) use crc::contribution;
pub use file::ChecksumFile;

use std::collections::HashMap;
use std::sync::Arc;
use terrace_model::{Extent, FileIndex};

/// A run of bytes of a model's files that is read as a whole, or in equal parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its tensor, for errors.
    pub name: Arc<str>,
    /// Its bytes.
    pub extent: Extent,
    /// Number of parts: experts, or rows; 1 if it is only read as a whole. At least 1, and the length
    /// is a multiple of it.
    pub parts: u64,
}

impl Unit {
    /// Number of its checksums: one of the whole, and one for each part.
    fn count(&self) -> usize {
        let parts = if self.parts > 1 { self.parts } else { 0 };
        usize::try_from(parts).map_or(usize::MAX, |parts| parts.saturating_add(1))
    }

    /// Its extents, in the order of its checksums.
    fn extents(&self) -> impl Iterator<Item = Extent> {
        let parts = (self.parts > 1).then(|| (0..self.parts).map(|part| self.extent.part(part, self.parts)));
        std::iter::once(self.extent).chain(parts.into_iter().flatten())
    }
}

/// Returns how many checksums these units have together.
pub fn count(units: &[Unit]) -> usize {
    units.iter().fold(0, |all, unit| all.saturating_add(unit.count()))
}

/// The checksums (CRC-32) of parts of files.
#[derive(Debug)]
pub(crate) struct Checksums(HashMap<Extent, u32>);

impl Checksums {
    /// Makes the table of the units' checksums, which are in the order of
    /// [`Store::checksums`](crate::Store::checksums). `None` if they are not as many as these units
    /// have.
    pub fn new(units: &[Unit], sums: &[u32]) -> Option<Self> {
        let matches = count(units) == sums.len();
        let extents = units.iter().flat_map(Unit::extents);
        matches.then(|| Self(extents.zip(sums.iter().copied()).collect()))
    }

    /// Returns the checksum of these bytes, if it is known.
    pub fn of(&self, extent: Extent) -> Option<u32> {
        self.0.get(&extent).copied()
    }

    /// Notes the checksum of bytes that were read for the first time.
    pub fn learn(&mut self, extent: Extent, sum: u32) {
        self.0.insert(extent, sum);
    }

    /// Forgets a file, whose index may become another file's.
    pub fn forget(&mut self, file: FileIndex) {
        self.0.retain(|extent, _| extent.file != file);
    }
}

/// Adds up the checksums of units from their bytes in order.
#[derive(Debug)]
pub(crate) struct Summing<'a> {
    units: &'a [Unit],
    /// The current unit, and the bytes of it that were added.
    at: usize,
    done: u64,
    part: crc32fast::Hasher,
    whole: crc32fast::Hasher,
    parts: Vec<u32>,
    sums: Vec<u32>,
}

impl<'a> Summing<'a> {
    pub fn new(units: &'a [Unit]) -> Self {
        let (part, whole) = Default::default();
        Self { units, at: 0, done: 0, part, whole, parts: Vec::new(), sums: Vec::with_capacity(count(units)) }
    }

    /// Adds the next bytes, all of the same unit.
    pub fn add(&mut self, mut bytes: &[u8]) {
        let unit = &self.units[self.at];
        let len = unit.extent.len / unit.parts;
        while !bytes.is_empty() {
            let left = usize::try_from(len - self.done % len).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at(left.min(bytes.len()));
            self.part.update(now);
            self.done += now.len() as u64;
            bytes = rest;
            if self.done.is_multiple_of(len) {
                let part = std::mem::take(&mut self.part);
                self.whole.combine(&part);
                if unit.parts > 1 {
                    self.parts.push(part.finalize());
                }
            }
        }
        if self.done == unit.extent.len {
            self.sums.push(std::mem::take(&mut self.whole).finalize());
            self.sums.append(&mut self.parts);
            (self.at, self.done) = (self.at + 1, 0);
        }
    }

    /// Returns the checksums of all units.
    pub fn finish(self) -> Vec<u32> {
        debug_assert_eq!(self.at, self.units.len(), "every unit was added");
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unit(offset: u64, len: u64, parts: u64) -> Unit {
        Unit { name: "t".into(), extent: Extent { file: FileIndex(0), offset, len }, parts }
    }

    #[test]
    fn wholes_and_parts_are_found_and_others_are_not() {
        let units = [unit(0, 12, 3), unit(12, 5, 1)];
        let bytes: Vec<u8> = (0..17).collect();
        let mut summing = Summing::new(&units);
        for range in [0..2, 2..9, 9..12, 12..17] {
            summing.add(&bytes[range]);
        }
        let sums = summing.finish();
        assert_eq!(sums.len(), count(&units));
        let mut known = Checksums::new(&units, &sums).unwrap();
        for range in [0..12, 0..4, 4..8, 8..12, 12..17] {
            let extent = Extent { file: FileIndex(0), offset: range.start as u64, len: range.len() as u64 };
            assert_eq!(known.of(extent), Some(crc32fast::hash(&bytes[range])), "{extent:?}");
        }
        assert_eq!(known.of(Extent { file: FileIndex(0), offset: 1, len: 4 }), None);
        assert_eq!(known.of(Extent { file: FileIndex(1), ..units[0].extent }), None);
        assert!(Checksums::new(&units, &sums[1..]).is_none());
        known.forget(FileIndex(0));
        assert_eq!(known.of(units[0].extent), None);
    }

    proptest! {
        #[test]
        fn bytes_may_come_in_any_portions(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            parts in 1..9u64,
            portion in 1..50usize,
        ) {
            let len = bytes.len() as u64 * parts;
            let all: Vec<u8> = (0..parts).flat_map(|_| bytes.clone()).collect();
            let units = [unit(7, len, parts)];
            let mut summing = Summing::new(&units);
            all.chunks(portion).for_each(|portion| summing.add(portion));
            let mut expected = vec![crc32fast::hash(&all)];
            if parts > 1 {
                expected.extend((0..parts).map(|_| crc32fast::hash(&bytes)));
            }
            prop_assert_eq!(summing.finish(), expected);
        }
    }
}
