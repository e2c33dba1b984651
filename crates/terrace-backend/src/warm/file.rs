//! Statistics of a model's experts, in a file that may be deleted at any time.

use super::USE;
use crate::observe::usage::ExpertUsage;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;
use terrace_model::ModelFile;
use terrace_model::identity::FileIdentity;
use terrace_model::learn::{ExpertUses, LayerShape, LearnFile, LearnLayer, MOST_BYTES, Reported};
use terrace_platform::input_file;
use terrace_store::identity::file_identity;
use terrace_store::model_cache::ModelCacheFile;
use terrace_store::{FileKind, KeptFileError};

const KIND: FileKind = FileKind { what: "an expert statistics file", format: "terrace-experts", version: 1 };
/// Maximum size of a file in bytes; the largest models of today have 48,000 experts, which take
/// half a megabyte.
const MAX_FILE: u64 = 4 << 20;

/// Counts of one layer's experts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerCounts {
    /// Its number.
    pub layer: u32,
    /// Decayed uses by expert.
    pub counts: Vec<u64>,
}

/// The statistics file of one model.
#[derive(Debug)]
pub struct UsageFile(ModelCacheFile);

#[derive(Serialize, Deserialize)]
struct Wire {
    format: String,
    version: u32,
    model: FileIdentity,
    layers: Vec<LayerCounts>,
}

impl UsageFile {
    /// The model's file in `dir`.
    pub fn new(dir: &Path, model: FileIdentity) -> Self {
        Self(ModelCacheFile::new(dir, model, MAX_FILE))
    }

    /// Where it is.
    #[cfg(any(test, fuzzing))]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads the counts; empty if there is no file. Only layers of `shape` are returned, with as
    /// many experts as there.
    ///
    /// # Errors
    /// The system's reason, or why the file is not this model's statistics.
    pub fn read(&self, shape: &ExpertUsage) -> Result<Vec<LayerCounts>, KeptFileError> {
        let Some(wire) = self.0.read(&KIND, |wire: &Wire| &wire.model)? else { return Ok(Vec::new()) };
        // The managed layers differ between runs.
        for (id, experts) in shape.shape() {
            let of_layer = |other: &&LayerCounts| other.layer == id.0;
            let mut found = wire.layers.iter().filter(of_layer);
            if found.next().is_some_and(|l| l.counts.len() != experts) || found.next().is_some() {
                return Err(self.0.wrong(format!("wrong number of experts in layer {id}")));
            }
        }
        let managed = |of: &LayerCounts| shape.shape().any(|(layer, _)| layer.0 == of.layer);
        Ok(wire.layers.into_iter().filter(managed).collect())
    }

    /// Replaces the file, and removes files of models that have not been used for long.
    ///
    /// # Errors
    /// The system's reason, or too many experts for a file.
    pub fn write(&self, layers: Vec<LayerCounts>) -> Result<(), KeptFileError> {
        self.0.write(&text_of(self.0.model().clone(), layers))
    }
}

/// The text of a model's file.
fn text_of(model: FileIdentity, layers: Vec<LayerCounts>) -> String {
    let wire = Wire { format: KIND.format.into(), version: KIND.version, model, layers };
    serde_json::to_string(&wire).expect("counts are plain data")
}

/// Reads a learn file, or statistics that Terrace keeps itself; `None` if there is no file.
///
/// # Errors
/// The system's reason, or what is wrong with the text.
pub fn read_learned(path: &Path) -> Result<Option<LearnFile>, String> {
    let text = match input_file::read(path, MOST_BYTES as u64) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // The byte order mark of an editor.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
    let learned =
        from_statistics(text).unwrap_or_else(|| LearnFile::parse(text).map_err(|reason| reason.to_string()));
    learned.map(Some)
}

/// Reads statistics as a learn file, in whole uses; `None` if the text is of another format. The
/// error says what is wrong with it.
fn from_statistics(text: &[u8]) -> Option<Result<LearnFile, String>> {
    #[derive(Deserialize)]
    struct Format {
        format: String,
    }
    serde_json::from_slice::<Format>(text).ok().filter(|of| of.format == KIND.format)?;
    let layers = |wire: Wire| {
        let mut layers: Vec<LearnLayer> = Vec::new();
        for LayerCounts { layer, counts } in wire.layers {
            if layers.iter().any(|known| known.layer == layer) {
                return Err(format!("layer {layer} is listed twice"));
            }
            // What was used is not forgotten by rounding.
            let whole = |count: u64| (count / USE + u64::from(count % USE >= USE / 2)).max(1);
            let used = (0..).zip(counts).filter(|(_, count)| *count > 0);
            let experts =
                used.map(|(expert, count)| ExpertUses { expert, hot: 0, cold: whole(count) }).collect();
            layers.push(LearnLayer { layer, experts, ..LearnLayer::default() });
        }
        layers.retain(|layer| !layer.experts.is_empty());
        layers.sort_by_key(|layer| layer.layer);
        Ok(LearnFile { mode: Reported::Update, layers, ..LearnFile::default() })
    };
    Some(KIND.parse(text).and_then(layers))
}

/// The text of a model's statistics, with the uses of a learn file that fits the model, whose
/// layers have these `shapes`.
///
/// # Errors
/// The system's reason why the model cannot be identified.
pub fn to_statistics(model: &ModelFile, shapes: &[LayerShape], file: &LearnFile) -> std::io::Result<String> {
    let identity = file_identity(model)?;
    let layer = |shape: &LayerShape| LayerCounts {
        layer: shape.layer,
        counts: match file.layer(shape.layer) {
            Some(layer) => layer.counts(shape.experts).iter().map(|uses| uses.saturating_mul(USE)).collect(),
            None => vec![0; shape.experts as usize],
        },
    };
    let layers = shapes.iter().map(layer).collect();
    Ok(text_of(identity, layers))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
