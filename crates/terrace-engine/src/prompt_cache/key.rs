//! Which computation kept conversations belong to.

use serde::{Deserialize, Serialize};
use terrace_model::ModelFile;
use terrace_model::identity::{FileIdentity, FileState, ModelIdentity};
use terrace_store::identity::file_identity;

/// Everything that determines keys and values apart from the tokens. What was kept under another key
/// is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheKey {
    /// The program and its ggml: another release may compute or store differently.
    pub build: String,
    /// The model.
    pub model: ModelIdentity,
    /// CRC-32 of the header of its first file.
    pub header: u32,
    /// Size and time of the last write, in nanoseconds since 1970, of each of its files.
    pub files: Vec<(u64, i64)>,
    /// Types of keys and values.
    pub kv_type: String,
    /// Layers that are skipped.
    pub skipped: Vec<u32>,
    /// What else is lossy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossy: Option<String>,
    /// Number of sequences, by which llama.cpp divides its copies.
    pub sequences: u32,
    /// Whether sequences share their tokens.
    pub unified: bool,
}

impl CacheKey {
    /// The key of a model whose files were in these states; `None` if one of them is unknown.
    pub fn of(
        model: &ModelFile,
        states: &[Option<FileState>],
        (kv_type, skipped, lossy): (String, Vec<u32>, Option<String>),
        (sequences, unified): (u32, bool),
    ) -> Option<Self> {
        let FileIdentity { header, .. } = file_identity(model).ok()?;
        let file = |state: &Option<FileState>| {
            let state = (*state)?;
            Some((state.size, i64::try_from(state.modified).ok()?))
        };
        Some(Self {
            build: format!(
                "terrace {}, ggml {}",
                env!("CARGO_PKG_VERSION"),
                terrace_ggml::devices::libraries::version()
            ),
            model: ModelIdentity::of(model),
            header,
            files: states.iter().map(file).collect::<Option<_>>()?,
            kv_type,
            skipped,
            lossy,
            sequences,
            unified,
        })
    }

    /// The key in a file.
    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// A number by which file names differ.
    pub(super) fn number(&self) -> u32 {
        crc32fast::hash(&self.json())
    }
}
