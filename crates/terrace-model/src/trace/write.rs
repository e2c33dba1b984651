//! Writing a trace into memory, so that a run that records never waits for a disk.

use super::{MAGIC, RECORD_END, RECORD_GROUP, RECORD_PASS, RunRecord, TraceGroup, TraceHeader, VERSION};
use std::collections::HashMap;

/// Bytes after which recording ends (256 MiB, about half a million tokens of a large model): a
/// forgotten recording must not fill the memory.
const MAX_BYTES: usize = 256 << 20;

/// Encodes a trace while it is being recorded.
#[derive(Debug)]
pub struct TraceWriter {
    bytes: Vec<u8>,
    groups: HashMap<TraceGroup, u32>,
    most: usize,
    full: bool,
}

impl TraceWriter {
    /// Starts a trace with this header and no passes.
    pub fn new(header: &TraceHeader) -> Self {
        let mut writer = Self { bytes: MAGIC.to_vec(), groups: HashMap::new(), most: MAX_BYTES, full: false };
        writer.number(VERSION);
        writer.text(&header.architecture);
        writer.text(&header.model);
        writer.number(header.alignment);
        writer.number(header.files.len() as u64);
        header.files.iter().for_each(|len| writer.number(*len));
        writer.number(header.tensors.len() as u64);
        for tensor in &header.tensors {
            writer.number(u64::from(tensor.extent.file.0));
            writer.number(tensor.extent.offset);
            writer.number(tensor.extent.len);
            writer.number(tensor.layer.map_or(0, |layer| u64::from(layer.0) + 1));
            writer.number(u64::from(tensor.experts.unwrap_or(0)));
        }
        writer
    }

    /// Begins a pass. A trace holds whole passes only: once its length has reached the limit, further
    /// passes are left out.
    pub fn pass(&mut self) {
        self.full |= self.bytes.len() >= self.most;
        if !self.full {
            self.number(RECORD_PASS);
        }
    }

    /// Adds an MoE block to the current pass: the experts of each token in ascending order, token
    /// after token.
    pub fn block(&mut self, group: &TraceGroup, ids: &[u32]) {
        debug_assert!(ids.len().is_multiple_of(group.top_k as usize), "{} ids by {}", ids.len(), group.top_k);
        if self.full {
            return;
        }
        match self.groups.get(group) {
            Some(&index) => self.number(RECORD_GROUP + u64::from(index)),
            None => {
                let index = u32::try_from(self.groups.len()).expect("fewer groups than tensors");
                self.groups.insert(group.clone(), index);
                self.number(RECORD_GROUP + u64::from(index));
                self.number(group.tensors.len() as u64);
                group.tensors.iter().for_each(|tensor| self.number(u64::from(*tensor)));
                self.number(u64::from(group.experts));
                self.number(u64::from(group.top_k));
            }
        }
        self.number((ids.len() / group.top_k as usize) as u64);
        for token in ids.chunks(group.top_k as usize) {
            let mut before = 0;
            for &id in token {
                self.number(u64::from(id - before));
                before = id;
            }
        }
    }

    /// Returns whether passes were left out because the trace had become too long.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the bytes of the trace, with the run's counters at its end.
    pub fn finish(mut self, run: &RunRecord) -> Vec<u8> {
        self.number(RECORD_END);
        self.text(&run.policy);
        for number in [
            run.slots.bytes(),
            run.hits,
            run.misses,
            run.evictions,
            run.bytes_read.bytes(),
            run.bytes_per_second,
        ] {
            self.number(number);
        }
        let checksum = crc32fast::hash(&self.bytes);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        self.bytes
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    #[cfg(test)]
    pub(super) fn with_most(self, most: usize) -> Self {
        Self { most, ..self }
    }
}
