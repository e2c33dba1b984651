//! Checksums of a model, kept in a file that may be deleted at any time.

use crate::cache_file::{forget_oldest, read_cache_bytes, replace_cache_file};
use crate::file_kind::{FileKind, KeptFileError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use terrace_model::identity::{FileIdentity, FileState};

const KIND: FileKind = FileKind { what: "a file of checksums", format: "terrace-checksums", version: 1 };
/// The ending of its name.
const ENDING: &str = "crc";
/// Most bytes of its first line.
const MOST_HEAD: usize = 1 << 20;
/// Most models; beyond it, the file of the one that was used first is removed.
const MAX_MODELS: usize = 64;

/// The file of a model's checksums: a line of JSON, then the checksums as little-endian numbers.
#[derive(Debug)]
pub struct ChecksumFile {
    path: PathBuf,
    model: FileIdentity,
    files: Vec<Stamp>,
}

/// The state of a file, as far as it stays the same when the computer is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: i128,
    changed: i128,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    model: FileIdentity,
    files: Vec<Stamp>,
    count: usize,
    /// CRC-32 of the bytes after this line.
    crc: u32,
}

impl ChecksumFile {
    /// Names the file in `dir` for a model whose files are in these states. Each place of a model
    /// has its own.
    pub fn new(dir: &Path, model: FileIdentity, files: &[FileState]) -> Self {
        let inode = files.first().map_or(0, |state| state.inode);
        let path = dir.join(format!("{}-{inode:x}.{ENDING}", model.file_stem()));
        let stamp = |state: &FileState| Stamp {
            inode: state.inode,
            size: state.size,
            modified: state.modified,
            changed: state.changed,
        };
        Self { path, model, files: files.iter().map(stamp).collect() }
    }

    /// Returns the name of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `count` checksums. `None` if none were kept, or if the model's files have changed since.
    ///
    /// # Errors
    /// The system's reason, or why the file does not hold this model's checksums.
    pub fn read(&self, count: usize) -> Result<Option<Vec<u32>>, KeptFileError> {
        let most = count.saturating_mul(4).saturating_add(MOST_HEAD);
        let bytes = read_cache_bytes(&self.path, most as u64).map_err(|error| self.wrong(error))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let no_head = || self.wrong("not a file of checksums");
        let end = bytes.iter().take(MOST_HEAD).position(|&byte| byte == b'\n').ok_or_else(no_head)?;
        let (head, sums) = (&bytes[..end], &bytes[end + 1..]);
        let head: Head = KIND.parse(head).map_err(|reason| self.wrong(reason))?;
        if crc32fast::hash(sums) != head.crc || sums.len() != head.count.saturating_mul(4) {
            return Err(self.wrong("it is damaged"));
        }
        if head.model != self.model || head.files != self.files {
            return Ok(None);
        }
        if head.count != count {
            return Err(self.wrong(format!("it has {} checksums instead of {count}", head.count)));
        }
        let sums = sums.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        Ok(Some(sums.collect()))
    }

    /// Replaces the file, and removes files of models that have not been used for long.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, sums: &[u32]) -> Result<(), KeptFileError> {
        let sums: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let head = Head {
            format: KIND.format.into(),
            version: KIND.version,
            model: self.model.clone(),
            files: self.files.clone(),
            count: sums.len() / 4,
            crc: crc32fast::hash(&sums),
        };
        let mut bytes = serde_json::to_vec(&head).map_err(|error| self.wrong(error))?;
        bytes.push(b'\n');
        bytes.extend(sums);
        replace_cache_file(&self.path, &bytes).map_err(|error| self.wrong(error))?;
        forget_oldest(&self.path, MAX_MODELS);
        Ok(())
    }

    fn wrong(&self, reason: impl ToString) -> KeptFileError {
        KeptFileError::new(&self.path, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    const STATE: FileState =
        FileState { device: 1, inode: 2, size: 3, modified: 1_700_000_000_000_000_004, changed: 5 };

    fn identity() -> FileIdentity {
        FileIdentity { name: "a b.gguf".into(), bytes: 1000, header: 7 }
    }

    #[test]
    fn checksums_are_kept_for_the_state_of_the_files() {
        let dir = TempDir::new().unwrap();
        let at = dir.path().join("new/checksums");
        let file = ChecksumFile::new(&at, identity(), &[STATE, STATE]);
        assert_eq!(file.path(), at.join("a_b-3e8-00000007-2.crc"));
        assert_eq!(file.read(2).unwrap(), None);
        file.write(&[1, u32::MAX]).unwrap();
        assert_eq!(file.read(2).unwrap(), Some(vec![1, u32::MAX]));
        // The number of a device may change when the computer is started again.
        let started = FileState { device: 9, ..STATE };
        assert!(ChecksumFile::new(&at, identity(), &[STATE, started]).read(2).unwrap().is_some());
        for other in [
            FileState { size: 4, ..STATE },
            FileState { modified: 4, ..STATE },
            FileState { changed: 4, ..STATE },
            FileState { inode: 4, ..STATE },
        ] {
            assert_eq!(ChecksumFile::new(&at, identity(), &[STATE, other]).read(2).unwrap(), None);
        }
        assert_eq!(fs::read_dir(&at).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn a_damaged_file_is_named_and_replaced() {
        let dir = TempDir::new().unwrap();
        let file = ChecksumFile::new(dir.path(), identity(), &[STATE]);
        file.write(&[1, 2, 3]).unwrap();
        let good = fs::read(file.path()).unwrap();
        let text = |from: &str, to: &str| {
            let end = good.len() - 13;
            let head = str::from_utf8(&good[..end]).unwrap();
            assert!(head.contains(from), "{head}");
            [head.replace(from, to).as_bytes(), &good[end..]].concat()
        };
        let mut broken = vec![
            Vec::new(),
            b"\n".to_vec(),
            vec![0xff; 100],
            good[..good.len() - 1].to_vec(),
            [&good[..], b"1"].concat(),
            text("terrace-checksums", "other"),
            text("\"version\":1", "\"version\":2"),
            text("\"count\":3", "\"count\":-3"),
            text("\"count\":3", "\"count\":99999999999999"),
            text("\"files\":[", "\"files\":7,\"x\":["),
        ];
        // Each byte of the checksums, and the first of the line's end.
        for index in good.len() - 13..good.len() {
            let mut bytes = good.clone();
            bytes[index] ^= 1;
            broken.push(bytes);
        }
        for bytes in broken {
            fs::write(file.path(), &bytes).unwrap();
            let error = file.read(3).unwrap_err().to_string();
            assert!(error.contains("a_b-3e8-00000007-2.crc: "), "{error}");
            file.write(&[4]).unwrap();
            assert_eq!(file.read(1).unwrap(), Some(vec![4]));
            assert!(file.read(3).is_err());
        }
        fs::remove_file(file.path()).unwrap();
        fs::create_dir(file.path()).unwrap();
        file.read(3).unwrap_err();
        file.write(&[4]).unwrap_err();
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_a_crash(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), cut in 0..300usize) {
            let dir = TempDir::new().unwrap();
            let file = ChecksumFile::new(dir.path(), identity(), &[STATE]);
            file.write(&[1, 2, 3]).unwrap();
            let mut mixed = fs::read(file.path()).unwrap();
            let cut = cut.min(mixed.len());
            mixed.splice(cut..(cut + bytes.len()).min(mixed.len()), bytes);
            fs::write(file.path(), &mixed).unwrap();
            // Unless nothing was changed, these are not taken for the checksums.
            if let Ok(Some(sums)) = file.read(3) {
                proptest::prop_assert_eq!(sums, vec![1, 2, 3]);
            }
        }
    }
}
