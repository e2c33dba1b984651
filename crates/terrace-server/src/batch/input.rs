//! The lines of a batch's file, which is read line by line: it may be larger than memory.

use super::error::BatchError;
use crate::request::allowed::MOST_BYTES;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use terrace_platform::input_file;

/// Longest line in bytes: a body of the largest size, and what is around it.
const MOST_LINE: u64 = MOST_BYTES as u64 + (64 << 10);

/// A file of requests, one a line. Empty lines are none.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    file: File,
    lines: Vec<Place>,
}

/// A line of the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    bytes: u64,
    /// Counted from 1.
    number: usize,
}

/// A line that was read.
#[derive(Debug)]
pub struct RequestLine {
    /// `None`: it is longer than any request.
    pub text: Option<Vec<u8>>,
    /// Its number in the file, from 1.
    pub number: usize,
    /// The beginning of its SHA-256, by which a journal knows it again.
    pub digest: String,
}

impl Input {
    /// Finds the lines of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a regular one.
    pub fn open(path: &Path) -> Result<Self, BatchError> {
        let (file, _) = input_file::open(path).map_err(BatchError::io(path))?;
        let mut lines = Vec::new();
        let mut reader = BufReader::new(&file);
        let (mut at, mut number, mut end) = (0, 0, false);
        while !end {
            let (mut bytes, mut blank) = (0, true);
            // Not whole lines: one may be as long as the file.
            loop {
                let part = reader.fill_buf().map_err(BatchError::io(path))?;
                end = part.is_empty();
                let line = part.iter().position(|&byte| byte == b'\n');
                let taken = &part[..line.unwrap_or(part.len())];
                blank &= taken.iter().all(u8::is_ascii_whitespace);
                bytes += taken.len() as u64;
                let read = taken.len() + usize::from(line.is_some());
                reader.consume(read);
                if line.is_some() || end {
                    break;
                }
            }
            number += 1;
            if !blank {
                lines.push(Place { at, bytes, number });
            }
            at += bytes + 1;
        }
        Ok(Self { path: path.to_owned(), file, lines })
    }

    /// Number of requests.
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Reads a request's line.
    ///
    /// # Errors
    /// The system's.
    pub fn line(&self, index: usize) -> Result<RequestLine, BatchError> {
        let Place { at, bytes, number } = self.lines[index];
        let mut file = &self.file;
        let mut read = || {
            file.seek(SeekFrom::Start(at))?;
            let mut text = Vec::new();
            file.take(bytes.min(MOST_LINE)).read_to_end(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(BatchError::io(&self.path))?;
        let digest = Sha256::digest(&text)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(RequestLine { text: (bytes <= MOST_LINE).then_some(text), number, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_whatever_ends_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"a\":1}\n\n  \r\n{\"b\":2}\r\n{\"c\":3}").unwrap();
        let input = Input::open(file.path()).unwrap();
        let lines: Vec<_> = (0..input.len()).map(|index| input.line(index).unwrap()).collect();
        let texts: Vec<_> = lines.iter().map(|line| line.text.clone().unwrap()).collect();
        assert_eq!(texts, [&b"{\"a\":1}"[..], b"{\"b\":2}\r", b"{\"c\":3}"]);
        assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 4, 5]);
        assert_ne!(lines[0].digest, lines[1].digest);
        std::fs::write(file.path(), "").unwrap();
        assert!(Input::open(file.path()).unwrap().is_empty());
    }

    #[test]
    fn a_line_beyond_the_limit_is_not_read_into_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MOST_LINE + 1).unwrap();
        let input = Input::open(file.path()).unwrap();
        assert_eq!((input.len(), input.line(0).unwrap().text), (1, None));
    }
}
