//! Reading a trace without trusting any byte of it: every allocation is bounded by the length of
//! the file.

use super::{
    MAGIC, Pass, RECORD_END, RECORD_GROUP, RECORD_PASS, RunRecord, Trace, TraceError, TraceGroup,
    TraceHeader, TracedBlock, TracedTensor, VERSION,
};
use crate::bytesize::ByteSize;
use crate::ids::{FileIndex, LayerId};
use crate::model::Extent;

/// The most bytes of a text.
const MOST_TEXT: u64 = 4096;
/// The most layers, experts or tensors, far more than any model has.
const MOST_COUNT: u64 = 1 << 20;
/// The most blocks of all tensors together, ten times what the largest models have: a replay makes
/// tables of them.
const MOST_BLOCKS: u64 = 1 << 20;
/// Alignments are powers of two up to a page.
const MOST_ALIGNMENT: u64 = 4096;

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// [`TraceError`], with the offset of what is wrong.
    pub fn read(bytes: &[u8]) -> Result<Self, TraceError> {
        let mut cursor = Cursor { bytes, at: 0 };
        let header = header(&mut cursor)?;
        let mut trace = Self { header, ..Self::default() };
        loop {
            let start = cursor.at;
            match cursor.number("a record", u64::MAX)? {
                RECORD_END => break,
                RECORD_PASS => trace.passes.push(Pass::default()),
                record => {
                    let most = trace.groups.len() as u64;
                    let group = record - RECORD_GROUP;
                    if group > most {
                        let what = "a group's number";
                        return Err(TraceError::Number { offset: start, what, found: group, most });
                    }
                    if group == most {
                        trace.groups.push(definition(&mut cursor, &trace.header)?);
                    }
                    let block = block(&mut cursor, group, &trace.groups)?;
                    let Some(pass) = trace.passes.last_mut() else {
                        let reason = "an MoE block before the first pass";
                        return Err(TraceError::Invalid { offset: start, reason });
                    };
                    pass.blocks.push(block);
                }
            }
        }
        trace.run = run(&mut cursor)?;
        checksum(&mut cursor)?;
        Ok(trace)
    }
}

fn header(cursor: &mut Cursor<'_>) -> Result<TraceHeader, TraceError> {
    if !cursor.bytes.starts_with(MAGIC) {
        return Err(TraceError::Magic);
    }
    cursor.at = MAGIC.len();
    match cursor.number("the version", u64::MAX)? {
        VERSION => {}
        found => return Err(TraceError::Version { found }),
    }
    let architecture = cursor.text("the architecture")?;
    let model = cursor.text("the model's name")?;
    let start = cursor.at;
    let alignment = cursor.number("the alignment", MOST_ALIGNMENT)?;
    if !alignment.is_power_of_two() {
        return Err(TraceError::Invalid { offset: start, reason: "the alignment is not a power of two" });
    }
    let files = cursor.count("the number of files", 1)?;
    // Rounding the end of a read up to the alignment must not overflow.
    let most = i64::MAX.unsigned_abs();
    let files: Vec<u64> =
        (0..files).map(|_| cursor.number("a file's length", most)).collect::<Result<_, _>>()?;
    let tensors = cursor.count("the number of tensors", 5)?;
    let (mut blocks, mut bytes) = (0, 0);
    let tensors = (0..tensors)
        .map(|_| {
            let start = cursor.at;
            let tensor = tensor(cursor, &files)?;
            blocks += u64::from(tensor.experts.unwrap_or(1));
            if blocks > MOST_BLOCKS {
                let what = "the number of blocks";
                return Err(TraceError::Number { offset: start, what, found: blocks, most: MOST_BLOCKS });
            }
            // Both are below 2^63.
            bytes += tensor.extent.len;
            if bytes > most {
                let what = "the length of all tensors";
                return Err(TraceError::Number { offset: start, what, found: bytes, most });
            }
            Ok(tensor)
        })
        .collect::<Result<_, _>>()?;
    Ok(TraceHeader { architecture, model, alignment, files, tensors })
}

fn tensor(cursor: &mut Cursor<'_>, files: &[u64]) -> Result<TracedTensor, TraceError> {
    let offset = cursor.at;
    let last = (files.len() as u64).checked_sub(1);
    let last = last.ok_or(TraceError::Invalid { offset, reason: "a tensor in a trace without files" })?;
    let file = cursor.number("a tensor's file", last)?;
    let end = files[file as usize];
    let start = cursor.number("a tensor's offset", end)?;
    let len = cursor.number("a tensor's length", end - start)?;
    let layer = cursor.number("a layer", MOST_COUNT)?;
    let experts = cursor.number("a tensor's experts", MOST_COUNT)?;
    if len == 0 || !len.is_multiple_of(experts.max(1)) {
        return Err(TraceError::Invalid {
            offset,
            reason: "a tensor whose length is not a multiple of its experts",
        });
    }
    Ok(TracedTensor {
        extent: Extent { file: FileIndex(file as u32), offset: start, len },
        layer: layer.checked_sub(1).map(|layer| LayerId(layer as u32)),
        experts: (experts > 0).then_some(experts as u32),
    })
}

fn definition(cursor: &mut Cursor<'_>, header: &TraceHeader) -> Result<TraceGroup, TraceError> {
    let offset = cursor.at;
    let last = (header.tensors.len() as u64).checked_sub(1);
    let last = last.ok_or(TraceError::Invalid { offset, reason: "a group in a trace without tensors" })?;
    let count = cursor.count("the number of a group's tensors", 1)?;
    let tensors: Vec<u32> = (0..count)
        .map(|_| cursor.number("a group's tensor", last).map(|index| index as u32))
        .collect::<Result<_, _>>()?;
    let experts = cursor.number("a group's experts", MOST_COUNT)? as u32;
    let top_k = cursor.number("top-k", u64::from(experts))? as u32;
    let fits = |&index: &u32| header.tensors[index as usize].experts == Some(experts);
    if tensors.is_empty() || top_k == 0 || !tensors.iter().all(fits) {
        let reason = "a group that does not match its tensors";
        return Err(TraceError::Invalid { offset, reason });
    }
    Ok(TraceGroup { tensors, experts, top_k })
}

fn block(cursor: &mut Cursor<'_>, index: u64, groups: &[TraceGroup]) -> Result<TracedBlock, TraceError> {
    let group = &groups[index as usize];
    let tokens = cursor.count("the number of tokens", group.top_k as usize)?;
    let last = u64::from(group.experts) - 1;
    let mut ids = Vec::with_capacity(tokens * group.top_k as usize);
    for _ in 0..tokens {
        let mut id = 0;
        for _ in 0..group.top_k {
            id += cursor.number("an expert, or the difference to the one before,", last - id)?;
            ids.push(id as u32);
        }
    }
    Ok(TracedBlock { group: index as u32, ids: ids.into() })
}

fn run(cursor: &mut Cursor<'_>) -> Result<RunRecord, TraceError> {
    let policy = cursor.text("the policy")?;
    let mut next = |what| cursor.number(what, u64::MAX);
    Ok(RunRecord {
        policy,
        slots: ByteSize(next("the slots")?),
        hits: next("the hits")?,
        misses: next("the misses")?,
        evictions: next("the evictions")?,
        bytes_read: ByteSize(next("the bytes read")?),
        bytes_per_second: next("the bandwidth")?,
    })
}

fn checksum(cursor: &mut Cursor<'_>) -> Result<(), TraceError> {
    let (before, rest) = cursor.bytes.split_at(cursor.at);
    let Some((stored, after)) = rest.split_first_chunk() else {
        return Err(TraceError::Truncated { offset: cursor.bytes.len(), what: "the checksum" });
    };
    let (stored, computed) = (u32::from_le_bytes(*stored), crc32fast::hash(before));
    if stored != computed {
        return Err(TraceError::Checksum { offset: cursor.at, stored, computed });
    }
    if !after.is_empty() {
        let offset = cursor.at + stored.to_le_bytes().len();
        return Err(TraceError::Invalid { offset, reason: "bytes after the end of the trace" });
    }
    Ok(())
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn number(&mut self, what: &'static str, most: u64) -> Result<u64, TraceError> {
        let start = self.at;
        let mut number = 0u64;
        for shift in (0..).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(TraceError::Truncated { offset: self.bytes.len(), what });
            };
            self.at += 1;
            let part = u64::from(byte & 0x7f);
            // The tenth byte can hold one more bit.
            if shift > 63 || (shift == 63 && part > 1) {
                let reason = "a number longer than 64 bits";
                return Err(TraceError::Invalid { offset: start, reason });
            }
            number |= part << shift;
            if byte < 0x80 {
                break;
            }
        }
        if number > most {
            return Err(TraceError::Number { offset: start, what, found: number, most });
        }
        Ok(number)
    }

    /// Reads a count of things that take at least `each` bytes apiece, so the rest of the file
    /// bounds it.
    fn count(&mut self, what: &'static str, each: usize) -> Result<usize, TraceError> {
        let most = (self.bytes.len() - self.at) / each.max(1);
        self.number(what, most as u64).map(|count| count as usize)
    }

    fn text(&mut self, what: &'static str) -> Result<String, TraceError> {
        let len = self.number(what, MOST_TEXT)? as usize;
        let start = self.at;
        let Some(bytes) = self.bytes.get(start..start + len) else {
            return Err(TraceError::Truncated { offset: self.bytes.len(), what });
        };
        self.at += len;
        let invalid = TraceError::Invalid { offset: start, reason: "text that is not UTF-8" };
        String::from_utf8(bytes.to_vec()).map_err(|_| invalid)
    }
}

#[cfg(test)]
mod tests;
