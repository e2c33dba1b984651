//! The record of a model that is kept between runs: one file per model, with a section for each kind of
//! knowledge. It may be deleted at any time.

mod file;
mod lengths;
#[cfg(test)]
mod tests;

pub use file::{MAX_MODELS, RecordFile};
pub use lengths::{Lengths, UsualLengths};

use crate::file_kind::FileKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use terrace_model::identity::FileIdentity;

const KIND: FileKind = FileKind { what: "the record of a model", format: "terrace-model-record", version: 1 };

/// Weight of one use or answer in the record. Halved with every run, it vanishes after seven.
pub const WEIGHT: u64 = 64;

/// The memory of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// Uses of experts, each layer once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experts: Vec<LayerCounts>,
    /// Lengths of prompts and answers.
    #[serde(default, skip_serializing_if = "Lengths::is_empty")]
    pub lengths: Lengths,
    /// Sections of other releases, which are kept as they are.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Counts of one layer's experts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerCounts {
    /// Its number.
    pub layer: u32,
    /// Decayed uses by expert, in units of 1 / [`WEIGHT`].
    pub counts: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    format: String,
    version: u32,
    model: FileIdentity,
    #[serde(flatten)]
    record: ModelRecord,
}

impl ModelRecord {
    /// A record of nothing but uses of experts.
    pub fn of_uses(experts: Vec<LayerCounts>) -> Self {
        Self { experts, ..Self::default() }
    }

    /// Parses a record, whichever model it is of. `None` means that the text is of another format; the
    /// error says what is wrong with a record.
    pub fn recognise(text: &[u8]) -> Option<Result<Self, String>> {
        #[derive(Deserialize)]
        struct Format {
            format: String,
        }
        serde_json::from_slice::<Format>(text).ok().filter(|of| of.format == KIND.format)?;
        Some(Self::parse(text).map(|(_, record)| record))
    }

    /// The text of a model's record.
    pub fn to_text(&self, model: &FileIdentity) -> String {
        let (format, version) = (KIND.format.into(), KIND.version);
        let wire = Wire { format, version, model: model.clone(), record: self.clone() };
        serde_json::to_string(&wire).expect("a record is plain data")
    }

    fn parse(text: &[u8]) -> Result<(FileIdentity, Self), String> {
        let Wire { model, record, .. } = KIND.parse(text)?;
        let mut layers: Vec<u32> = record.experts.iter().map(|of| of.layer).collect();
        layers.sort_unstable();
        if let Some(twice) = layers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("layer {} is listed twice", twice[0]));
        }
        if !record.lengths.is_believable() {
            return Err("its lengths are of no run".into());
        }
        Ok((model, record))
    }
}
