//! Copies of files on other disks: reading what one failed to give from another.

use super::Store;
use crate::inflight::Owner;
use crate::io::CopyStats;
use crate::slots::Failure;
use std::io;
use std::path::Path;

/// Handling of a failed read.
pub(super) enum Elsewhere {
    /// It was sent again, to another copy.
    Sent,
    /// There is no other copy.
    Nowhere(Failure),
}

impl Store {
    /// Returns what the copies of the files that have replicas were used for since the store was
    /// opened or [`Store::reset_stats`] was called. Empty without replicas.
    pub fn copies(&self) -> Vec<CopyStats> {
        self.copies.stats()
    }

    /// Stops using the replicas of the file at `path`, because the file has changed and they are no
    /// copies of it any more.
    pub fn drop_replicas(&mut self, path: &Path) {
        let files = (0..).zip(&self.files.all).filter(|(_, file)| file.path == path);
        for (file, _) in files {
            for copy in self.copies.numbers(file).skip(1) {
                if let Some(replica) = self.copies.drop_copy(file, copy) {
                    let (replica, path) = (replica.display(), path.display());
                    tracing::warn!("replica {replica} is no longer used: {path} has changed");
                }
            }
        }
    }

    /// Returns the copies that a request must not read, as bits.
    pub(super) fn ruled_out(&self, owner: &Owner) -> u64 {
        if self.copies.is_empty() {
            return 0;
        }
        match owner {
            Owner::Block(block) => self.avoid_for_block(*block),
            Owner::Caller { read, .. } => self.caller.avoid(*read),
            Owner::Rows { .. } => 0,
        }
    }

    /// Sends a request that failed to another copy, and gives up the one that failed, unless it is
    /// the last. If there is no other, the failure is that of the original.
    pub(super) fn read_elsewhere(&mut self, tag: u32, failure: Failure) -> Elsewhere {
        if self.copies.is_empty() {
            return Elsewhere::Nowhere(failure);
        }
        let Some(flight) = self.flights.get_mut(tag) else { return Elsewhere::Nowhere(failure) };
        let (file, copy, len) = (flight.file, flight.copy, flight.need as u64);
        self.copies.failed(file, copy);
        if copy == 0 {
            flight.failure = Some(failure);
        }
        flight.avoid |= 1 << copy;
        let Some(other) = self.copies.choose(file, len, flight.avoid) else {
            return Elsewhere::Nowhere(flight.failure.unwrap_or(failure));
        };
        self.copies.landed(file, copy, len);
        self.copies.sent(file, other, len);
        (flight.copy, flight.from, flight.refusals) = (other, 0, 0);
        let (block, offset, target) = (flight.owner.block(), flight.offset, flight.buf.target());
        if let Some(path) = self.copies.give_up(file, copy) {
            let (path, what) = (path.display(), why(failure));
            if copy == 0 {
                tracing::warn!("{path} {what}; its replicas are read instead");
            } else {
                tracing::warn!("replica {path} {what}; it is no longer used, and nothing was lost");
            }
        }
        self.push(block, self.request(tag, (file, other), offset, target));
        Elsewhere::Sent
    }
}

/// Says what happened to a copy.
fn why(failure: Failure) -> String {
    match failure {
        Failure::Os(errno) => format!("cannot be read: {}", io::Error::from_raw_os_error(errno)),
        Failure::Eof { end } => format!("has no bytes from {end} on: it was cut off"),
        Failure::Checksum { .. } => "does not match its checksum".into(),
    }
}
