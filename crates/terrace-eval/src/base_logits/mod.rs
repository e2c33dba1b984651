//! Base files: log probabilities that a model is compared with, in the format that llama.cpp's
//! `perplexity` tool reads and writes with `--kl-divergence-base`.

pub mod error;
mod layout;
pub mod row;
mod write;

pub use error::{BaseLogitsError, BaseLogitsFault};
pub use layout::FILE;
pub use write::LogitsFile;

use crate::chunks::{Chunks, PerplexityOptions};
use layout::Layout;
use row::Row;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_model::ByteSize;
use terrace_platform::file::Positioned;
use terrace_platform::input_file;

/// The log probabilities of a base model for a text.
#[derive(Debug)]
pub struct BaseLogits {
    path: PathBuf,
    layout: Layout,
    tokens: Arc<[i32]>,
    rows: Rows,
}

/// Place of the rows.
#[derive(Debug)]
enum Rows {
    /// In the file, with one chunk in memory.
    File { file: File, chunk: Vec<u16>, held: Option<usize> },
    /// All in memory.
    Memory(Vec<u16>),
}

impl BaseLogits {
    /// Opens a file and reads its tokens. Rows are read one chunk at a time, when they are needed.
    ///
    /// # Errors
    /// If it is not a base file, or is inconsistent or incomplete.
    pub fn open(path: &Path) -> Result<Self, BaseLogitsError> {
        let error = |fault| BaseLogitsError { path: path.to_owned(), fault };
        Self::read_header(path).map_err(error)
    }

    fn read_header(path: &Path) -> Result<Self, BaseLogitsFault> {
        let (mut file, bytes) = input_file::open(path)?;
        let layout = Layout::read(&mut file, bytes)?;
        // The file is that long, so this allocates no more than it has.
        let mut bytes = vec![0; 4 * layout.tokens()];
        file.read_exact(&mut bytes)?;
        let tokens: Arc<[i32]> =
            bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let vocab = layout.vocab;
        let outside = |&token: &i32| usize::try_from(token).map_or(true, |token| token >= vocab);
        if let Some(position) = tokens.iter().position(outside) {
            let offset = Layout::token_offset(position);
            return Err(BaseLogitsFault::Token { token: tokens[position], position, offset, vocab });
        }
        let rows = Rows::File { file, chunk: Vec::new(), held: None };
        Ok(Self { path: path.to_owned(), layout, tokens, rows })
    }

    /// Reads all rows into memory if they take at most `most`, for callers that compare repeatedly.
    /// Returns whether they are in memory now.
    ///
    /// # Errors
    /// The file's.
    pub fn keep_in_memory(&mut self, most: ByteSize) -> Result<bool, BaseLogitsError> {
        if let Rows::File { file, .. } = &self.rows {
            let words = self.layout.chunks.count * self.layout.chunk_words();
            if 2 * words as u64 > most.bytes() {
                return Ok(false);
            }
            let mut all = vec![0; words];
            read_words(file, &mut all, self.layout.row_offset(0, 0)).map_err(|fault| self.error(fault))?;
            self.rows = Rows::Memory(all);
        }
        Ok(true)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tokens in a chunk.
    pub fn context(&self) -> usize {
        self.layout.chunks.context
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.layout.chunks.count
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.layout.vocab
    }

    /// Tokens of all chunks: the text that the base model evaluated.
    pub fn tokens(&self) -> Arc<[i32]> {
        Arc::clone(&self.tokens)
    }

    /// The chunks that `options` requests, or all if there are fewer or it requests no number.
    ///
    /// # Errors
    /// [`BaseLogitsFault::Context`] if chunks have another length.
    pub fn chunks_for(&self, options: &PerplexityOptions) -> Result<Chunks, BaseLogitsError> {
        let Chunks { context, count } = self.layout.chunks;
        let asked = options.chunks.unwrap_or(count).clamp(1, count);
        if options.context != context {
            return Err(self.error(BaseLogitsFault::Context { base: context, asked: options.context }));
        }
        Ok(Chunks { context, count: asked })
    }

    /// The chunks on which a model with this vocabulary size can be compared, given the tokens of
    /// its text.
    ///
    /// # Errors
    /// If the vocabulary or the text differs; see also [`BaseLogits::chunks_for`].
    pub(crate) fn chunks_of(
        &self,
        text: &[i32],
        vocab: usize,
        options: &PerplexityOptions,
    ) -> Result<Chunks, BaseLogitsError> {
        if self.layout.vocab != vocab {
            return Err(self.error(BaseLogitsFault::Vocab { base: self.layout.vocab, model: vocab }));
        }
        let chunks = self.chunks_for(options)?;
        let compared = &self.tokens[..chunks.count * chunks.context];
        if let Some(position) = compared.iter().zip(text).position(|(base, text)| base != text) {
            let (base, text) = (compared[position], text[position]);
            return Err(self.error(BaseLogitsFault::Text { position, base, text }));
        }
        if text.len() < compared.len() {
            let (base, text) = (compared.len(), text.len());
            return Err(self.error(BaseLogitsFault::TextLength { base, text }));
        }
        Ok(chunks)
    }

    /// The rows of a chunk's scored positions, in order.
    ///
    /// # Errors
    /// If the file cannot be read, or has numbers that are not log probabilities.
    pub(crate) fn chunk(&mut self, index: usize) -> Result<Vec<Row<'_>>, BaseLogitsError> {
        self.hold(index).map_err(|fault| self.error(fault))?;
        let Layout { vocab, .. } = self.layout;
        let words = match &self.rows {
            Rows::File { chunk, .. } => chunk.as_slice(),
            Rows::Memory(all) => &all[index * self.layout.chunk_words()..][..self.layout.chunk_words()],
        };
        let rows = words.chunks_exact(row::words(vocab)).enumerate();
        rows.map(|(row, words)| {
            Row::of(words, vocab).map_err(|reason| {
                let offset = self.layout.row_offset(index, row);
                self.error(BaseLogitsFault::Row { reason, row, chunk: index, offset })
            })
        })
        .collect()
    }

    fn hold(&mut self, index: usize) -> Result<(), BaseLogitsFault> {
        if let Rows::File { file, chunk, held } = &mut self.rows
            && *held != Some(index)
        {
            *held = None;
            chunk.resize(self.layout.chunk_words(), 0);
            read_words(file, chunk, self.layout.row_offset(index, 0))?;
            *held = Some(index);
        }
        Ok(())
    }

    fn error(&self, fault: BaseLogitsFault) -> BaseLogitsError {
        BaseLogitsError { path: self.path.clone(), fault }
    }
}

/// Bytes per read. A piece stays in the CPU's cache until it is converted.
const PIECE: usize = 256 << 10;

fn read_words(file: &File, words: &mut [u16], offset: u64) -> Result<(), BaseLogitsFault> {
    let mut bytes = vec![0; PIECE.min(2 * words.len())];
    let mut at = offset;
    for words in words.chunks_mut(PIECE / 2) {
        let bytes = &mut bytes[..2 * words.len()];
        file.read_exact_at(bytes, at)?;
        at += bytes.len() as u64;
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(2)) {
            *word = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
