//! Which model it is, wherever its file lies.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use terrace_model::ModelFile;

/// Bytes of a header that are looked at.
const MOST_HEADER: u64 = 64 << 20;
/// Characters of a file's name in the name of the statistics.
const MOST_NAME: usize = 80;

/// A model by the name of its (first) file, its size and its header; not by its path. A mix-up costs speed and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The first file's name.
    pub name: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// CRC-32 of the first file up to its tensors' data: metadata, vocabulary and the table of tensors.
    pub header: u32,
}

impl FileIdentity {
    /// Of a model whose header was read. Reads it again, as bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn of(model: &ModelFile) -> io::Result<Self> {
        let first = model.shards.first().ok_or_else(|| io::Error::other("a model without files"))?;
        let mut header = File::open(&first.path)?.take(first.data_offset.min(MOST_HEADER));
        let (mut crc, mut part) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
        loop {
            match header.read(&mut part)? {
                0 => break,
                n => crc.update(&part[..n]),
            }
        }
        let name = first.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = model.shards.iter().map(|shard| shard.len).sum();
        Ok(Self { name, bytes, header: crc.finalize() })
    }

    /// A file's name for it, without an extension.
    pub fn file_stem(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let stem = self.name.strip_suffix(".gguf").unwrap_or(&self.name);
        let name: String = stem.chars().take(MOST_NAME).map(plain).collect();
        format!("{name}-{:x}-{:08x}", self.bytes, self.header)
    }
}
