//! Comparing what is read with the checksums of what the files held at first.
//!
//! Bytes are summed where a request lands, on the consumer's thread, while they are in its caches
//! and other requests are in flight. Requests land in any order, so the sum of each is shifted to
//! its place in the whole.

use super::Store;
use crate::block::BlockId;
use crate::checksums::{Checksums, Summing, Unit};
use crate::error::StoreError;
use crate::inflight::{Flight, Owner};
use crate::io::REPLICAS;
use crate::slots::Failure;
use crate::store::read_into::ReadInto;
use crate::store::sums::{Again, CallerSum, Sum};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use terrace_model::{ByteSize, Extent};

/// Bytes that are read at once to be summed, and most bytes of one read of them.
const BATCH: usize = 32 << 20;
const PIECE: u64 = 8 << 20;

/// The checksums of a store that verifies.
#[derive(Debug)]
pub(super) struct Verify {
    known: Checksums,
    /// The sum of each block that is being read.
    blocks: Box<[Sum]>,
    /// Blocks that had another checksum, and are being read again.
    again: HashMap<BlockId, Again>,
}

impl Store {
    /// Reads these units once, and returns their checksums: for each unit that of the whole, then
    /// those of its parts if it has several. `progress` is called with the bytes read so far, and
    /// may stop it. Takes 32 MiB of memory beside the budget.
    ///
    /// # Errors
    /// The same as [`Store::read_into`].
    pub fn checksums(
        &mut self,
        units: &[Unit],
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<Vec<u32>, StoreError> {
        let pieces = |unit: &Unit| {
            let (extent, name) = (unit.extent, unit.name.clone());
            (0..extent.len).step_by(PIECE as usize).map(move |from| {
                let len = PIECE.min(extent.len - from);
                (Extent { offset: extent.offset + from, len, ..extent }, name.clone())
            })
        };
        let mut pieces = units.iter().flat_map(pieces).peekable();
        let mut summing = Summing::new(units);
        let mut buffer = vec![0; BATCH];
        let mut before = 0;
        while pieces.peek().is_some() {
            let (mut batch, mut rest) = (Vec::new(), BATCH);
            while let Some(piece) = pieces.next_if(|(extent, _)| extent.len <= rest as u64) {
                rest -= as_len(piece.0.len);
                batch.push(piece);
            }
            let mut free = &mut buffer[..];
            let mut reads = Vec::with_capacity(batch.len());
            for (extent, name) in &batch {
                let (dst, after) = free.split_at_mut(as_len(extent.len));
                free = after;
                reads.push(ReadInto { extent: *extent, dst, name });
            }
            // Replicas are compared with the originals, too.
            self.read_from(&mut reads, REPLICAS, &mut |done| progress(ByteSize(before + done.bytes())))?;
            for read in reads {
                summing.add(read.dst);
            }
            before += (BATCH - rest) as u64;
        }
        Ok(summing.finish())
    }

    /// Compares all blocks that are read from now on, and reads of whole units or parts of them,
    /// with these checksums, as returned by [`Store::checksums`]. What differs is read once more; if
    /// it still does, the read fails with [`StoreError::Checksum`]. A block without a checksum,
    /// because it was [replaced](Store::replace), gets that of its first read.
    ///
    /// # Errors
    /// [`StoreError::Misuse`] if there are more or fewer checksums than these units have.
    pub fn verify(&mut self, units: &[Unit], sums: &[u32]) -> Result<(), StoreError> {
        let known = Checksums::new(units, sums)
            .ok_or_else(|| StoreError::Misuse(format!("{} checksums for other units", sums.len())))?;
        let blocks = vec![Sum::default(); self.blocks.len()].into();
        self.verify = Some(Verify { known, blocks, again: HashMap::new() });
        Ok(())
    }

    /// Adds a part of a block that has arrived. Returns the failure if it was the last part and the
    /// checksum is not the expected one.
    pub(super) fn sum_block_part(&mut self, block: BlockId, flight: &Flight) -> Option<Failure> {
        let verify = self.verify.as_mut()?;
        let extent = self.blocks[block.index()].extent;
        // The first window of a direct read begins before the block.
        let skip = extent.offset.saturating_sub(flight.offset);
        let part = flight.buf.arrived(as_len(skip), flight.need - as_len(skip));
        let found = verify.blocks[block.index()].add(extent, flight.offset + skip, part, flight.copy)?;
        let Some(expected) = verify.known.of(extent) else {
            verify.known.learn(extent, found);
            return None;
        };
        self.counters.total.verified += 1;
        if found == expected {
            return None;
        }
        self.counters.total.mismatches += 1;
        Some(Failure::Checksum { expected, found })
    }

    /// Returns whether a demand for a block with this failure is worth reading it again: bytes that
    /// the bus or the disk's memory has changed may be right then.
    pub(super) fn may_heal(&mut self, block: BlockId, failure: Failure) -> bool {
        let Some(verify) = self.verify.as_mut().filter(|_| matches!(failure, Failure::Checksum { .. }))
        else {
            return false;
        };
        let Entry::Vacant(again) = verify.again.entry(block) else { return false };
        let extent = self.blocks[block.index()].extent;
        again.insert(Again::of(&self.copies, extent, &verify.blocks[block.index()]));
        self.files.drop_cached(extent);
        true
    }

    /// Returns the expected checksum of these bytes, if it is known.
    pub(super) fn expected_sum(&self, extent: Extent) -> Option<u32> {
        self.verify.as_ref()?.known.of(extent)
    }

    /// Returns the copies of its file that must not be read for a block, as bits.
    pub(super) fn avoid_for_block(&self, block: BlockId) -> u64 {
        match &self.verify {
            Some(verify) if !verify.again.is_empty() => verify.again.get(&block).map_or(0, |a| a.avoid),
            _ => 0,
        }
    }

    /// Notes that the parts of a block that were read so far do not count, because it is read again
    /// from the start.
    pub(super) fn sum_again(&mut self, block: BlockId) {
        if let Some(verify) = &mut self.verify {
            verify.blocks[block.index()] = Sum::default();
        }
    }

    /// Notes that reading a block has ended, and whether it has arrived.
    pub(super) fn sum_over(&mut self, block: BlockId, arrived: bool) {
        self.sum_again(block);
        if let Some(verify) = &mut self.verify
            && !verify.again.is_empty()
            && let Some(again) = verify.again.remove(&block)
            && arrived
        {
            let name = self.blocks[block.index()].to_string();
            self.healed(&name, self.blocks[block.index()].extent, again);
        }
    }

    /// Counts bytes that were right when read again. The replicas that gave wrong ones are not used
    /// any more.
    pub(super) fn healed(&mut self, name: &str, extent: Extent, again: Again) {
        self.counters.total.healed += 1;
        let mut told = false;
        for copy in self.copies.numbers(extent.file.0).skip(1).filter(|copy| again.wrong & (1 << copy) != 0) {
            self.copies.failed(extent.file.0, copy);
            if let Some(path) = self.copies.drop_copy(extent.file.0, copy) {
                told = true;
                let path = path.display();
                tracing::warn!("replica {path} is no longer used: {name} has other bytes there");
            }
        }
        if !told {
            tracing::warn!("{name} did not match its checksum, and did when read again");
        }
    }

    /// Prepares the caller's reads for reading these again.
    pub(super) fn read_again(&mut self, wrong: &[(usize, Failure)]) {
        for sum in self.caller.sums.iter_mut().flatten() {
            let again = Again::of(&self.copies, sum.extent, &sum.sum);
            (sum.sum, sum.found, sum.again) = (Sum::default(), None, again);
        }
        for (read, _) in wrong {
            if let Some(Some(sum)) = self.caller.sums.get(*read) {
                self.files.drop_cached(sum.extent);
            }
        }
    }

    /// Notes that a caller's read, which was wrong at first, is right.
    pub(super) fn read_healed(&mut self, read: usize, name: &str) {
        if let Some(Some(CallerSum { extent, again, .. })) = self.caller.sums.get(read).copied() {
            self.healed(name, extent, again);
        }
    }

    /// Returns the expected checksums of the caller's reads; nothing if the store does not verify.
    pub(super) fn caller_sums(&self, reads: &[ReadInto<'_>]) -> Vec<Option<CallerSum>> {
        let Some(verify) = &self.verify else { return Vec::new() };
        let sum = |extent| {
            let expected = verify.known.of(extent)?;
            Some(CallerSum { extent, expected, sum: Sum::default(), found: None, again: Again::default() })
        };
        reads.iter().map(|read| sum(read.extent)).collect()
    }

    /// Adds a part of a caller's read that has arrived.
    pub(super) fn sum_caller_part(&mut self, flight: &Flight) {
        let Owner::Caller { read, len, stage } = &flight.owner else { return };
        let Some(Some(read)) = self.caller.sums.get_mut(*read) else { return };
        let skip = stage.as_ref().map_or(0, |stage| stage.skip);
        let part = flight.buf.arrived(skip, as_len(*len));
        read.found = read.sum.add(read.extent, flight.offset + skip as u64, part, flight.copy);
    }

    /// Compares the caller's reads, all of which have arrived. Returns the wrong ones, by index.
    pub(super) fn wrong_reads(&mut self) -> Vec<(usize, Failure)> {
        let sums = self.caller.sums.iter().flatten();
        self.counters.total.verified += sums.filter(|sum| sum.found.is_some()).count() as u64;
        let sums = self.caller.sums.iter().enumerate();
        let wrong: Vec<_> = sums.filter_map(|(index, sum)| Some((index, sum.as_ref()?.failure()?))).collect();
        self.counters.total.mismatches += wrong.len() as u64;
        wrong
    }

    /// Forgets the checksums of a file that was closed.
    pub(super) fn forget_checksums(&mut self, file: terrace_model::FileIndex) {
        if let Some(verify) = &mut self.verify {
            verify.known.forget(file);
        }
    }
}

fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("a part of memory that exists")
}
