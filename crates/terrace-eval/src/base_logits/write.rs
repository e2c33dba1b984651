//! Writes base files.

use super::layout::{FILE, Layout};
use super::{BaseLogitsError, row};
use crate::chunks::Chunks;
use crate::stats::log_softmax::LogSum;
use crate::threads::on_threads;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use terrace_platform::file::allocate;
use terrace_store::part_file::PartFile;

/// Rows encoded at a time: enough for all threads, and a small part of a chunk.
const BAND: usize = 32;

/// A base file being written. It appears under its name when it is complete.
#[derive(Debug)]
pub struct LogitsFile(PartFile);

impl LogitsFile {
    /// Opens the file, so that a missing folder is noticed before a model is loaded.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path) -> Result<Self, BaseLogitsError> {
        let part = PartFile::create(path, &FILE);
        part.map(Self).map_err(|source| BaseLogitsError { path: path.to_owned(), fault: source.into() })
    }

    /// Path of the complete file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the tokens of the chunks and the rows of their scored positions; `rows` passes them
    /// to a [`RowWriter`] in order.
    ///
    /// # Errors
    /// Errors of the system (a lack of disk space shows before the first row) and of `rows`.
    pub(crate) fn fill<E: From<BaseLogitsError>>(
        self,
        chunks: Chunks,
        vocab: usize,
        tokens: &[i32],
        rows: impl FnOnce(&mut RowWriter<'_, '_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let layout = Layout { chunks, vocab };
        let path = self.path().to_owned();
        // Carries an error of `rows` past the writer.
        let mut failed = None;
        let written = self.0.finish(|out| {
            reserve(out.get_ref(), layout.bytes())?;
            layout.write(out)?;
            for token in &tokens[..layout.tokens()] {
                out.write_all(&token.to_le_bytes())?;
            }
            let path = &path;
            let mut writer =
                RowWriter { path, out, vocab: layout.vocab, words: Vec::new(), bytes: Vec::new() };
            rows(&mut writer).map_err(|error| {
                failed = Some(error);
                io::Error::other("rows")
            })
        });
        match (written, failed) {
            (_, Some(error)) => Err(error),
            (Err(source), None) => Err(BaseLogitsError { path, fault: source.into() }.into()),
            (Ok(bytes), None) => Ok(bytes),
        }
    }
}

/// Allocates the whole file: a full disk should be noticed before hours of computing.
fn reserve(file: &File, bytes: u128) -> io::Result<()> {
    let bytes = u64::try_from(bytes).map_err(io::Error::other)?;
    allocate(file, bytes)
}

/// Writes rows of logits, in order.
pub struct RowWriter<'a, 'f> {
    path: &'a Path,
    out: &'a mut BufWriter<&'f File>,
    vocab: usize,
    words: Vec<u16>,
    bytes: Vec<u8>,
}

impl RowWriter<'_, '_> {
    /// Writes rows of one logit per vocabulary entry.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&mut self, rows: &[f32], threads: usize) -> Result<(), BaseLogitsError> {
        let words = row::words(self.vocab);
        for band in rows.chunks(BAND * self.vocab) {
            self.words.resize(band.len() / self.vocab * words, 0);
            let jobs = self.words.chunks_exact_mut(words).zip(band.chunks_exact(self.vocab)).collect();
            on_threads(threads, jobs, |(out, logits)| row::encode(logits, LogSum::of(logits), out));
            self.bytes.clear();
            self.bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
            let written = self.out.write_all(&self.bytes);
            written.map_err(|source| BaseLogitsError { path: self.path.to_owned(), fault: source.into() })?;
        }
        Ok(())
    }
}
