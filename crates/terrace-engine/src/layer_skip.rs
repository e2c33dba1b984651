//! The file that lists the layers of a model that can be skipped, and what skipping costs.

use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::json_file;
use crate::unfit::Unfit;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use terrace_model::ModelFile;
use terrace_model::identity::ModelIdentity;
use terrace_platform::own_file::{Form, OwnFile};
use terrace_store::UserDirs;
use terrace_store::identity::file_identity;

/// Version of the format; other versions are refused.
const VERSION: u32 = 1;

/// A file of layers to skip.
pub const FILE: OwnFile = OwnFile::new(
    "a layer skip file",
    Form::JsonKeys(&["version", "model", "similarity", "threshold", "skip"]),
);

/// The layers of one model that are skipped, how they were chosen, and what skipping costs. Lossy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerSkip {
    /// Version of the format.
    pub version: u32,
    /// The model that the file is for.
    pub model: ModelIdentity,
    /// Mean cosine similarity between a layer's input and output, by layer; `None` where there is
    /// nothing to compare, as in the first layer.
    pub similarity: Vec<Option<f64>>,
    /// A layer that streams is skipped if its similarity is above this.
    pub threshold: f64,
    /// The skipped layers, ascending; never the first or the last.
    pub skip: Vec<u32>,
    /// The perplexity without skipping.
    pub without: Measured,
    /// The perplexity with the layers skipped, on the same text.
    pub with: Measured,
}

/// A measured perplexity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub perplexity: f64,
    /// Its standard error.
    pub error: Option<f64>,
    /// Chunks that it was measured on.
    pub chunks: usize,
    /// Tokens in a chunk.
    pub context: usize,
}

impl LayerSkip {
    /// Makes the file's contents from the result of a calibration.
    pub fn new(
        model: ModelIdentity,
        similarity: Vec<Option<f64>>,
        threshold: f64,
        skip: Vec<u32>,
        [without, with]: [Measured; 2],
    ) -> Self {
        Self { version: VERSION, model, similarity, threshold, skip, without, with }
    }

    /// The value of the option that means the kept file.
    pub(crate) const AUTO: &str = "auto";

    /// Path of the last calibration of a model; `None` if nothing is kept.
    ///
    /// # Errors
    /// [`EngineError::File`] if the model's file cannot be read.
    pub fn kept(user: &UserDirs, model: &ModelFile) -> Result<Option<PathBuf>, EngineError> {
        let Some(cache) = &user.cache else { return Ok(None) };
        let identity = file_identity(model).map_err(|source| {
            let path = model.shards.first().map(|file| file.path.clone()).unwrap_or_default();
            FileError { role: FileRole::LayerSkip, path, reason: source.to_string() }
        })?;
        Ok(Some(cache.join("layer-skip").join(identity.file_stem()).with_added_extension("json")))
    }

    /// Reads what the last calibration of `model` has kept.
    ///
    /// # Errors
    /// As [`LayerSkip::read`]; also if there was no calibration.
    pub(crate) fn read_kept(user: &UserDirs, model: &ModelFile) -> Result<Self, EngineError> {
        match Self::kept(user, model)?.filter(|path| path.exists()) {
            Some(path) => Self::read(&path, model),
            None => Err(Unfit::NoCalibration.into()),
        }
    }

    /// Reads the file at `path`, which has to be for `model`.
    ///
    /// # Errors
    /// [`EngineError::File`]: no such file, not this format or version, made for another model, or
    /// layers that cannot be skipped.
    pub fn read(path: &Path, model: &ModelFile) -> Result<Self, EngineError> {
        let model = ModelIdentity::of(model);
        Ok(json_file::read(FileRole::LayerSkip, path, VERSION, |this: &Self| this.check(&model))?)
    }

    fn check(&self, model: &ModelIdentity) -> Result<(), String> {
        if self.model != *model {
            return Err(format!("made for {}, but the model is {model}", self.model));
        }
        if let Some(pair) = self.skip.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(format!("layers {} and {} are not in ascending order", pair[0], pair[1]));
        }
        match self.skip.iter().find(|&&layer| layer == 0 || layer + 1 >= model.layers) {
            Some(layer) => Err(format!("layer {layer} of {} cannot be skipped", model.layers)),
            None => Ok(()),
        }
    }

    /// Writes it to `path`, replacing an existing file once everything is written.
    ///
    /// # Errors
    /// [`EngineError::File`] with the system's reason.
    pub fn write(&self, path: &Path) -> Result<(), EngineError> {
        Ok(json_file::write(FileRole::LayerSkip, &FILE, path, self)?)
    }
}

impl fmt::Display for LayerSkip {
    /// `skipping layers 3, 4 of 48; perplexity went from 7.1234 to 7.2345 in the calibration`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<String> = self.skip.iter().map(u32::to_string).collect();
        let (without, with) = (self.without.perplexity, self.with.perplexity);
        match layers.as_slice() {
            [] => write!(f, "skipping no layer"),
            [one] => write!(f, "skipping layer {one} of {}", self.model.layers),
            _ => write!(f, "skipping layers {} of {}", layers.join(", "), self.model.layers),
        }?;
        if !layers.is_empty() {
            write!(f, "; perplexity went from {without:.4} to {with:.4} in the calibration")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> ModelIdentity {
        ModelIdentity { name: "m".into(), layers: 6, bytes: 1000 }
    }

    fn parse(text: &str, model: &ModelIdentity) -> Result<LayerSkip, String> {
        let this: LayerSkip = json_file::parse(FileRole::LayerSkip, text, VERSION)?;
        this.check(model).map(|()| this)
    }

    fn skip(layers: &[u32]) -> LayerSkip {
        let measured = |perplexity| Measured { perplexity, error: Some(0.5), chunks: 4, context: 512 };
        LayerSkip::new(
            identity(),
            vec![None, Some(0.99)],
            0.98,
            layers.to_vec(),
            [measured(7.0), measured(7.5)],
        )
    }

    #[test]
    fn files_are_read_as_they_were_written() {
        let text = serde_json::to_string(&skip(&[1, 4])).unwrap();
        assert_eq!(self::parse(&text, &identity()).unwrap(), skip(&[1, 4]));
        assert_eq!(
            skip(&[1, 4]).to_string(),
            "skipping layers 1, 4 of 6; perplexity went from 7.0000 to 7.5000 in the calibration"
        );
    }

    #[test]
    fn what_does_not_belong_is_refused() {
        let refused = |skip: &LayerSkip, model: &ModelIdentity| {
            self::parse(&serde_json::to_string(skip).unwrap(), model).unwrap_err()
        };
        for other in [
            ModelIdentity { name: "other".into(), ..identity() },
            ModelIdentity { layers: 7, ..identity() },
            ModelIdentity { bytes: 1001, ..identity() },
        ] {
            let error = refused(&skip(&[1]), &other);
            assert!(error.contains("made for") && error.contains(&other.to_string()), "{error}");
        }
        for (layers, part) in
            [(&[0_u32][..], "layer 0"), (&[5], "layer 5"), (&[3, 2], "ascending"), (&[2, 2], "ascending")]
        {
            let error = refused(&skip(layers), &identity());
            assert!(error.contains(part), "{layers:?}: {error}");
        }
        assert!(refused(&LayerSkip { version: 2, ..skip(&[1]) }, &identity()).contains("version 2"));
        for text in ["", "{}", "[1]", "{\"version\": 1}", "{\"version\": \"1\"}"] {
            assert!(self::parse(text, &identity()).unwrap_err().contains("not a layer skip file"), "{text}");
        }
    }
}
