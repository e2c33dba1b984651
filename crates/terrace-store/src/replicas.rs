//! Replicas: copies of a model's files on other disks. Finding them, and checking that they are
//! copies.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use terrace_model::{FileIndex, ModelFile, Shard};
use terrace_platform::file::{FileId, State};
use terrace_platform::input_file;

/// Bytes that are compared at once.
const PART: usize = 1 << 16;

/// A copy of one of a store's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The file that it is a copy of.
    pub file: FileIndex,
    /// Its path.
    pub path: PathBuf,
}

/// Why a named replica is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicaError {
    /// It cannot be read.
    #[error("cannot read replica {}: {source}", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A directory without any of the model's files.
    #[error("replica {} has none of the model's files; the first one is called {name}", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
        /// Name of the model's first file.
        name: String,
    },
    /// The file itself.
    #[error("replica {} is the model's own file {}, not a copy of it", path.display(), original.display())]
    Same {
        /// The file that was named.
        path: PathBuf,
        /// The model's file.
        original: PathBuf,
    },
    /// Another file.
    #[error("replica {} is not a copy of {}: {difference}", path.display(), original.display())]
    Different {
        /// The file that was named.
        path: PathBuf,
        /// The model's file.
        original: PathBuf,
        difference: String,
    },
    /// A file that is a copy of no shard, and is called as none.
    #[error(
        "replica {} is not a copy of any of the model's {files} files: none has its {len} bytes and its header",
        path.display()
    )]
    Unlike {
        /// The file that was named.
        path: PathBuf,
        /// Number of the model's files.
        files: usize,
        /// Bytes of the file that was named.
        len: u64,
    },
}

/// Finds the replicas that the user named: each is a file, or a directory with some of the model's
/// files under their own names. A copy has the size and the header of its original; no other bytes
/// are read. What is named twice counts once.
///
/// # Errors
/// If something that was named is not a copy.
pub fn find_replicas(model: &ModelFile, named: &[PathBuf]) -> Result<Vec<Replica>, ReplicaError> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for path in named {
        let open = |source| ReplicaError::Open { path: path.clone(), source };
        let is_dir = std::fs::metadata(path).map_err(open)?.is_dir();
        let copies = if is_dir { of_directory(model, path)? } else { vec![of_file(model, path)?] };
        for replica in copies {
            let open = |source| ReplicaError::Open { path: replica.path.clone(), source };
            let state = State::at(&replica.path).map_err(open)?;
            if seen.insert((replica.file, state.id)) {
                found.push(replica);
            }
        }
    }
    Ok(found)
}

fn of_directory(model: &ModelFile, dir: &Path) -> Result<Vec<Replica>, ReplicaError> {
    let mut found = Vec::new();
    for (file, shard) in (0..).map(FileIndex).zip(&model.shards) {
        let Some(name) = shard.path.file_name() else { continue };
        let path = dir.join(name);
        if path.exists() {
            compare(shard, &path)?;
            found.push(Replica { file, path });
        }
    }
    if found.is_empty() {
        let name = model.shards.first().and_then(|shard| shard.path.file_name());
        let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        return Err(ReplicaError::Empty { path: dir.to_owned(), name });
    }
    Ok(found)
}

fn of_file(model: &ModelFile, path: &Path) -> Result<Replica, ReplicaError> {
    let shards = || (0..).map(FileIndex).zip(&model.shards);
    let replica = |file| Replica { file, path: path.to_owned() };
    let called = || shards().find(|(_, shard)| shard.path.file_name() == path.file_name());
    match (model.shards.as_slice(), called()) {
        ([only], _) => compare(only, path).map(|()| replica(FileIndex(0))),
        (_, Some((file, shard))) => compare(shard, path).map(|()| replica(file)),
        (shards, None) => {
            // Called otherwise: whichever it equals.
            for (file, shard) in (0..).map(FileIndex).zip(shards) {
                match compare(shard, path) {
                    Ok(()) => return Ok(replica(file)),
                    Err(ReplicaError::Different { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let len = std::fs::metadata(path).map_or(0, |meta| meta.len());
            Err(ReplicaError::Unlike { path: path.to_owned(), files: shards.len(), len })
        }
    }
}

/// Compares sizes and headers.
fn compare(shard: &Shard, path: &Path) -> Result<(), ReplicaError> {
    let original = &shard.path;
    let failed = |path: &Path, source| ReplicaError::Open { path: path.to_owned(), source };
    let of = |path: &Path| std::fs::metadata(path).map_err(|source| failed(path, source));
    let (ours, theirs) = (of(original)?, of(path)?);
    if FileId::at(original).is_some_and(|id| FileId::at(path) == Some(id)) {
        return Err(ReplicaError::Same { path: path.to_owned(), original: original.clone() });
    }
    let different = |difference: String| ReplicaError::Different {
        path: path.to_owned(),
        original: original.clone(),
        difference,
    };
    if !theirs.is_file() {
        return Err(different("it is not a regular file".into()));
    }
    if ours.len() != theirs.len() {
        return Err(different(format!("it has {} bytes, not {}", theirs.len(), ours.len())));
    }
    let open = |path: &Path| match input_file::open(path) {
        Ok((file, _)) => Ok(file),
        Err(source) => Err(failed(path, source)),
    };
    let (ours, theirs) = (open(original)?, open(path)?);
    match first_difference(ours, theirs, shard.data_offset) {
        Ok(None) => Ok(()),
        Ok(Some(at)) => Err(different(format!(
            "byte {at} of its header differs (the header has {} bytes)",
            shard.data_offset
        ))),
        Err(source) => Err(failed(path, source)),
    }
}

/// Returns the offset of the first of `len` bytes that differs.
fn first_difference(one: impl Read, other: impl Read, len: u64) -> io::Result<Option<u64>> {
    let (mut one, mut other) = (one.take(len), other.take(len));
    let (mut left, mut right) = (vec![0; PART], vec![0; PART]);
    let mut at = 0;
    while at < len {
        let part = PART.min(usize::try_from(len - at).unwrap_or(PART));
        one.read_exact(&mut left[..part])?;
        other.read_exact(&mut right[..part])?;
        if let Some(differs) = left[..part].iter().zip(&right[..part]).position(|(a, b)| a != b) {
            return Ok(Some(at + differs as u64));
        }
        at += part as u64;
    }
    Ok(None)
}
