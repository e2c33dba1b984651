//! Reads the identity of files and models from the file system.

use std::io::{self, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_model::ModelFile;
use terrace_model::identity::{FileFingerprint, FileIdentity, FileState};
use terrace_platform::file::{Positioned, State};
use terrace_platform::input_file;

/// Most bytes of a header that are read.
const MOST_HEADER: u64 = 64 << 20;

/// Returns the current state of the file at `path`.
///
/// # Errors
/// Errors of the system.
pub fn file_state(path: &Path) -> io::Result<FileState> {
    let State { id, len, times } = State::at(path)?;
    Ok(FileState {
        device: id.device,
        inode: id.number,
        size: len,
        modified: times.modified,
        changed: times.changed,
    })
}

/// Returns the current time, to which [`FileState::changed`] is compared, in nanoseconds since 1970.
pub fn now() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    i128::try_from(since).unwrap_or(i128::MAX)
}

/// Returns the identity of a model. Reads the bytes of its header again.
///
/// # Errors
/// Errors of the system, and an error for a model without files.
pub fn file_identity(model: &ModelFile) -> io::Result<FileIdentity> {
    let none = || io::Error::other("the model has no files");
    let first = model.shards.first().ok_or_else(none)?;
    let mut header = input_file::open(&first.path)?.0.take(first.data_offset.min(MOST_HEADER));
    let (mut crc, mut part) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match header.read(&mut part)? {
            0 => break,
            n => crc.update(&part[..n]),
        }
    }
    FileIdentity::new(model, crc.finalize()).ok_or_else(none)
}

/// Number of blocks of a file that its fingerprint samples, and bytes of each.
const SAMPLED_BLOCKS: u64 = 16;
const SAMPLED_BYTES: u64 = 4096;

/// Returns the fingerprint of the file at `path`, whose state was `state`. Reads 16 blocks of 4 KiB.
///
/// # Errors
/// Errors of the system, and an error for times that cannot be expressed.
pub fn file_fingerprint(path: &Path, state: &FileState) -> io::Result<FileFingerprint> {
    let (file, _) = input_file::open(path)?;
    let mut crc = crc32fast::Hasher::new();
    let mut block = [0; SAMPLED_BYTES as usize];
    let last = state.size.saturating_sub(SAMPLED_BYTES);
    for number in 0..SAMPLED_BLOCKS {
        // The first block begins the file, the last one ends it.
        let at = u128::from(last) * u128::from(number) / u128::from(SAMPLED_BLOCKS - 1);
        let at = u64::try_from(at).unwrap_or(last);
        let len = usize::try_from(state.size.min(SAMPLED_BYTES)).unwrap_or(block.len());
        file.read_exact_at(&mut block[..len], at)?;
        crc.update(&block[..len]);
    }
    FileFingerprint::new(state, crc.finalize())
        .ok_or_else(|| io::Error::other("its times cannot be expressed in nanoseconds"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn fingerprints_differ_by_samples_where_states_do_not() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file");
        for size in [0_usize, 1, 4096, 5000, 300_000] {
            let mut bytes = vec![7; size];
            fs::write(&path, &bytes).unwrap();
            let state = file_state(&path).unwrap();
            let first = file_fingerprint(&path, &state).unwrap();
            assert_eq!(file_fingerprint(&path, &state).unwrap(), first);
            for at in [0, size / 2, size.saturating_sub(1)] {
                let Some(byte) = bytes.get_mut(at) else { continue };
                // The middle of a large file is between two blocks.
                let sampled = size <= 5000 || at != size / 2;
                *byte ^= 1;
                fs::write(&path, &bytes).unwrap();
                // As where a file system keeps no time of change.
                let same_state = file_fingerprint(&path, &state).unwrap();
                assert_eq!(same_state != first, sampled, "{size}, {at}");
                let state = file_state(&path).unwrap();
                assert_ne!(file_fingerprint(&path, &state).unwrap().changed, first.changed);
                bytes[at] ^= 1;
            }
        }
    }

    #[test]
    fn writing_and_replacing_are_seen() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file");
        assert!(file_state(&path).is_err());
        fs::write(&path, "a").unwrap();
        let first = file_state(&path).unwrap();
        assert_eq!(file_state(&path).unwrap(), first);
        fs::write(&path, "ab").unwrap();
        let written = file_state(&path).unwrap();
        assert!(written.same_file(&first) && !written.same_bytes(&first));
        fs::write(dir.path().join("other"), "ab").unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        assert!(!file_state(&path).unwrap().same_file(&written));
    }
}
