//! Learn files and records of models, each as the other.

use std::io::ErrorKind;
use std::path::Path;
use terrace_model::ModelFile;
use terrace_model::learn::{ExpertUses, LayerShape, LearnFile, LearnLayer, MOST_BYTES, Reported};
use terrace_platform::input_file;
use terrace_store::identity::file_identity;
use terrace_store::model_record::{LayerCounts, ModelRecord, WEIGHT};

/// Reads a learn file, or the record of a model; `None` if there is no file.
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
    match ModelRecord::recognise(text) {
        Some(record) => Ok(Some(from_record(record?))),
        None => LearnFile::parse(text).map(Some).map_err(|reason| reason.to_string()),
    }
}

/// The uses in a record, as whole ones.
fn from_record(record: ModelRecord) -> LearnFile {
    // What was used is not forgotten by rounding.
    let whole = |count: u64| (count / WEIGHT + u64::from(count % WEIGHT >= WEIGHT / 2)).max(1);
    let layer = |LayerCounts { layer, counts }: LayerCounts| {
        let used = (0..).zip(counts).filter(|(_, count)| *count > 0);
        let experts = used.map(|(expert, count)| ExpertUses { expert, hot: 0, cold: whole(count) }).collect();
        LearnLayer { layer, experts, ..LearnLayer::default() }
    };
    let mut layers: Vec<LearnLayer> = record.experts.into_iter().map(layer).collect();
    layers.retain(|layer| !layer.experts.is_empty());
    layers.sort_by_key(|layer| layer.layer);
    LearnFile { mode: Reported::Update, layers, ..LearnFile::default() }
}

/// The text of a model's record, with the uses of a learn file that fits the model, whose layers have
/// these `shapes`.
///
/// # Errors
/// The system's reason why the model cannot be identified.
pub fn to_record(model: &ModelFile, shapes: &[LayerShape], file: &LearnFile) -> std::io::Result<String> {
    let layer = |shape: &LayerShape| LayerCounts {
        layer: shape.layer,
        counts: match file.layer(shape.layer) {
            Some(layer) => {
                layer.counts(shape.experts).iter().map(|uses| uses.saturating_mul(WEIGHT)).collect()
            }
            None => vec![0; shape.experts as usize],
        },
    };
    let record = ModelRecord::of_uses(shapes.iter().map(layer).collect());
    Ok(record.to_text(&file_identity(model)?))
}
