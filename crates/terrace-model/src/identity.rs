//! Identity of files and of models: four types for four questions.
//!
//! * [`FileState`]: has the file at this path changed? Valid within a run; a file that has changed
//!   is examined again.
//! * [`FileIdentity`]: is this the file that some data was kept for, whatever its path? Valid
//!   between runs on one machine.
//! * [`ModelIdentity`]: is this the model that a result belongs to, by its own metadata? Valid
//!   anywhere.
//!
//! * [`FileFingerprint`]: are these the bytes that numbers were computed from? Valid between runs on one
//!   machine; mistaking other bytes for them would give wrong text.
//!
//! All four are plain data; `terrace_store::identity` gets them from the file system.

use crate::model::ModelFile;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most characters of a file's name in [`FileIdentity::file_stem`].
const MOST_NAME: usize = 80;

/// Time after a change within which another change may bear the same time, in nanoseconds: the
/// kernel's clock advances in ticks of up to 10 ms.
const TICK: i128 = 20_000_000;
/// The same where the file system keeps whole seconds, some of them every second one.
const COARSE_TICK: i128 = 2_020_000_000;
const SECOND: i128 = 1_000_000_000;

/// The state of a file at one time. Equal states mean that the file was not touched in between, if
/// the earlier one [is settled](FileState::is_settled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number within the file system.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last write, in nanoseconds since 1970.
    pub modified: i128,
    /// Time of the last change of any kind, including permissions and names, in nanoseconds since
    /// 1970.
    pub changed: i128,
}

impl FileState {
    /// Returns whether this is the same file as `other`, whatever its contents.
    pub fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns whether this is the same file as `other`, and cannot have been written to in between.
    /// False also if only its permissions, times or number of names changed: programs that copy a
    /// file with its times leave no other trace of the write.
    pub fn same_bytes(&self, other: &Self) -> bool {
        self == other
    }

    /// Returns whether a write after `now` (when the state was read, or earlier; in nanoseconds since
    /// 1970) is certain to give another state. It is not shortly after a change, since file times are
    /// coarse.
    pub const fn is_settled(&self, now: i128) -> bool {
        let coarse = self.changed % SECOND == 0;
        let tick = if coarse { COARSE_TICK } else { TICK };
        // A time that lies far ahead is not that of the next write either.
        (now - self.changed).unsigned_abs() > tick.unsigned_abs()
    }
}

/// Identifies a model by the name of its (first) file, its size and its header, not by its path.
/// Mistaking one model for another costs speed and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Name of the first file.
    pub name: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// CRC-32 of the first file up to its tensor data: metadata, vocabulary and the table of
    /// tensors.
    pub header: u32,
}

impl FileIdentity {
    /// Makes the identity of a model from the CRC-32 of its first file's header. `None` for a model
    /// without files.
    pub fn new(model: &ModelFile, header: u32) -> Option<Self> {
        let name = model.shards.first()?.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some(Self { name, bytes: bytes(model), header })
    }

    /// Returns a file name, without extension, under which data for this model can be kept.
    pub fn file_stem(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let stem = self.name.strip_suffix(".gguf").unwrap_or(&self.name);
        let name: String = stem.chars().take(MOST_NAME).map(plain).collect();
        format!("{name}-{:x}-{:08x}", self.bytes, self.header)
    }
}

/// Identifies the bytes of a file between runs. Equal for two files only if one is the other and was not
/// written to in between, as far as its file system keeps inode numbers and times of change, and if
/// sampled bytes are equal. A copy of the file has another one.
///
/// The number of the file system's device is not part of it: it may differ after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFingerprint {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last write, in nanoseconds since 1970.
    pub modified: i64,
    /// Time of the last change of any kind, in nanoseconds since 1970: it cannot be set, unlike
    /// [`FileFingerprint::modified`].
    pub changed: i64,
    /// Inode number.
    pub inode: u64,
    /// CRC-32 of blocks that are spread evenly over the file.
    pub sample: u32,
}

impl FileFingerprint {
    /// Makes the fingerprint of a file in this state, with this CRC-32 of its sampled blocks. `None`
    /// where a time lies outside of the years 1678 to 2262.
    pub fn new(state: &FileState, sample: u32) -> Option<Self> {
        Some(Self {
            size: state.size,
            modified: state.modified.try_into().ok()?,
            changed: state.changed.try_into().ok()?,
            inode: state.inode,
            sample,
        })
    }
}

/// Identifies a model by its metadata and size, whatever its files are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelIdentity {
    /// `general.name`, or the architecture if there is none.
    pub name: String,
    /// Number of layers.
    pub layers: u32,
    /// Bytes of all files.
    pub bytes: u64,
}

impl ModelIdentity {
    /// Takes the identity from a model's metadata and files.
    pub fn of(model: &ModelFile) -> Self {
        Self {
            name: model.str("general.name").unwrap_or(model.architecture()).to_owned(),
            layers: model.arch_u64("block_count").and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            bytes: bytes(model),
        }
    }
}

impl fmt::Display for ModelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({} layers, {} bytes)", self.name, self.layers, self.bytes)
    }
}

/// Returns the bytes of all files of a model.
fn bytes(model: &ModelFile) -> u64 {
    model.shards.iter().map(|shard| shard.len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_may_be_a_write() {
        let state = FileState { device: 1, inode: 2, size: 3, modified: 4, changed: 5 };
        assert!(state.same_bytes(&state));
        for written in [
            FileState { size: 4, ..state },
            FileState { modified: 5, ..state },
            // Written to, and its time put back.
            FileState { changed: 6, ..state },
        ] {
            assert!(written.same_file(&state) && !written.same_bytes(&state));
        }
        for other in [FileState { device: 2, ..state }, FileState { inode: 3, ..state }] {
            assert!(!other.same_file(&state) && !other.same_bytes(&state));
        }
    }

    #[test]
    fn a_state_is_settled_once_no_write_can_have_its_time() {
        let changed = 1_700_000_000 * SECOND + 123_456_789;
        let state = FileState { device: 1, inode: 2, size: 3, modified: 4, changed };
        for (after, settled) in
            [(0, false), (4_000_000, false), (TICK, false), (TICK + 1, true), (SECOND, true)]
        {
            assert_eq!(state.is_settled(changed + after), settled, "{after}");
        }
        // The clock was put back: the next write has an earlier time.
        assert!(state.is_settled(changed - SECOND) && !state.is_settled(changed - 1));
        let coarse = FileState { changed: 1_700_000_000 * SECOND, ..state };
        assert!(
            !coarse.is_settled(coarse.changed + SECOND) && coarse.is_settled(coarse.changed + 3 * SECOND)
        );
    }

    #[test]
    fn identities_are_written_as_ever() {
        let file = FileIdentity { name: "a b/c.gguf".into(), bytes: 255, header: 7 };
        assert_eq!(file.file_stem(), "a_b_c-ff-00000007");
        assert_eq!(serde_json::to_string(&file).unwrap(), r#"{"name":"a b/c.gguf","bytes":255,"header":7}"#);
        let model = ModelIdentity { name: "m".into(), layers: 6, bytes: 1000 };
        assert_eq!(serde_json::to_string(&model).unwrap(), r#"{"name":"m","layers":6,"bytes":1000}"#);
        assert_eq!(model.to_string(), "\"m\" (6 layers, 1000 bytes)");
    }
}
