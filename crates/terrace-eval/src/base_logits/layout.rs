//! The header of a base file, and the offsets of its parts.
//!
//! The format is llama.cpp's, little-endian: `_logits_`, tokens in a chunk (u32), size of the
//! vocabulary (i32), number of chunks (i32), the tokens of all chunks (i32 each), then the rows of
//! each chunk's scored positions.

use super::error::BaseLogitsFault;
use super::row::words;
use crate::chunks::Chunks;
use std::io::{self, Read, Write};
use terrace_platform::own_file::{Form, OwnFile};

const MAGIC: &[u8; 8] = b"_logits_";
pub const FILE: OwnFile = OwnFile::new("a base file of log probabilities", Form::Begins(MAGIC));
/// Bytes before the tokens.
const HEADER: u64 = 8 + 3 * 4;

/// The contents of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Division of the text into chunks.
    pub chunks: Chunks,
    /// Size of the vocabulary.
    pub vocab: usize,
}

impl Layout {
    /// Reads the header of a file of `bytes` bytes, and checks that the size matches.
    ///
    /// # Errors
    /// If it is not a base file, has impossible numbers, or another size than its header says.
    pub fn read(from: &mut impl Read, bytes: u64) -> Result<Self, BaseLogitsFault> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            Ok(()) if magic == *MAGIC => {}
            _ => return Err(BaseLogitsFault::Magic),
        }
        let mut number = |what, offset, least: u32| {
            let mut word = [0; 4];
            from.read_exact(&mut word)?;
            let value = i32::from_le_bytes(word);
            match u32::try_from(value) {
                Ok(n) if n >= least => Ok(n as usize),
                _ => Err(BaseLogitsFault::Header { what, value: value.into(), offset }),
            }
        };
        let context = number("chunk length", 8, 4)?;
        let vocab = number("vocabulary size", 12, 1)?;
        let count = number("number of chunks", 16, 1)?;
        let layout = Self { chunks: Chunks { context, count }, vocab };
        let expected = layout.bytes();
        if expected != u128::from(bytes) {
            return Err(BaseLogitsFault::Size { bytes, expected, chunks: count, context, vocab });
        }
        Ok(layout)
    }

    /// Writes the header.
    ///
    /// # Errors
    /// The system's reason, or a number that the format cannot hold.
    pub fn write(self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(MAGIC)?;
        for number in [self.chunks.context, self.vocab, self.chunks.count] {
            to.write_all(&i32::try_from(number).map_err(io::Error::other)?.to_le_bytes())?;
        }
        Ok(())
    }

    /// Number of tokens in all chunks.
    pub const fn tokens(self) -> usize {
        self.chunks.count * self.chunks.context
    }

    /// Offset of token `position`.
    pub const fn token_offset(position: usize) -> u64 {
        HEADER + 4 * position as u64
    }

    /// Number of 16-bit words in a chunk's rows.
    pub const fn chunk_words(self) -> usize {
        self.chunks.scored() * words(self.vocab)
    }

    /// Offset of row `row` of chunk `chunk`.
    pub const fn row_offset(self, chunk: usize, row: usize) -> u64 {
        let rows = (chunk * self.chunks.scored() + row) as u64;
        Self::token_offset(self.tokens()) + rows * 2 * words(self.vocab) as u64
    }

    /// Size of the file in bytes.
    pub const fn bytes(self) -> u128 {
        // The numbers come from an unchecked header; each is below 2^31.
        let chunk =
            self.chunks.context as u128 * 4 + self.chunks.scored() as u128 * 2 * words(self.vocab) as u128;
        HEADER as u128 + self.chunks.count as u128 * chunk
    }
}
