//! A file with settings and what they were measured to cost.

use super::{BudgetSpent, LossySettings, LowIdentity};
use crate::error::EngineError;
use crate::file_error::FileRole;
use crate::json_file;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use terrace_model::identity::ModelIdentity;
use terrace_model::{ByteSize, ModelFile};
use terrace_platform::own_file::{Form, OwnFile};

/// Version of the format; other versions are refused.
const VERSION: u32 = 1;

/// A file of lossy settings.
pub const FILE: OwnFile =
    OwnFile::new("a lossy file", Form::JsonKeys(&["version", "model", "settings", "cost"]));

/// Settings for one model, with their cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossyFile {
    /// Version of the format.
    version: u32,
    /// The model that the file is for.
    pub model: ModelIdentity,
    /// Settings.
    pub settings: LossySettings,
    /// The file of experts in fewer bits that was used; `None` if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<LowIdentity>,
    pub cost: LossyCost,
}

/// Cost and gain of settings on a text, evaluated token by token, against the same model without them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossyCost {
    /// Mean Kullback-Leibler divergence of the predictions.
    pub kld: f64,
    /// Its standard error.
    pub kld_error: Option<f64>,
    /// The perplexity without and with the settings.
    pub perplexity: [f64; 2],
    /// Share of positions at which the same token is ranked first, 0 to 1.
    pub same_top: f64,
    /// Bytes read per token without and with the settings.
    pub read_per_token: [f64; 2],
    /// Share of pairs of token and expert with another expert than the router alone chooses, and of those
    /// that were left out.
    pub substituted: f64,
    #[doc = "See [`LossyCost::substituted`]."]
    pub dropped: f64,
    /// Share of these pairs that were computed from the copy in fewer bits.
    #[serde(default)]
    pub low: f64,
    /// RAM for weights meanwhile: with more of it, less is lost.
    pub budget: ByteSize,
    /// What a quality budget spent by its own measurements; `None` if the settings were fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<BudgetSpent>,
    /// Tokens that were evaluated, and those that were scored.
    pub tokens: usize,
    #[doc = "See [`LossyCost::tokens`]."]
    pub scored: usize,
}

impl LossyCost {
    /// The change of the perplexity, in percent.
    pub fn perplexity_percent(&self) -> f64 {
        (self.perplexity[1] / self.perplexity[0] - 1.0) * 100.0
    }

    /// Bytes read, as a share of those that are read without the settings; `None` if nothing is.
    pub fn reads(&self) -> Option<f64> {
        let [without, with] = self.read_per_token;
        (without > 0.0).then(|| with / without)
    }
}

impl fmt::Display for LossyCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, same) = (self.perplexity_percent(), self.same_top * 100.0);
        write!(f, "KLD {:.4}, perplexity {percent:+.1} %, same top token {same:.1} %", self.kld)?;
        if let Some(reads) = self.reads() {
            write!(f, ", {:.0} % of the reads", reads * 100.0)?;
        }
        Ok(())
    }
}

impl LossyFile {
    /// Makes the file's contents from the result of a calibration.
    pub const fn new(
        model: ModelIdentity,
        settings: LossySettings,
        low: Option<LowIdentity>,
        cost: LossyCost,
    ) -> Self {
        Self { version: VERSION, model, settings, low, cost }
    }

    /// Reads the file at `path`, which has to be for `model`.
    ///
    /// # Errors
    /// [`EngineError::File`]: no such file, not this format or version, or made for another model.
    pub fn read(path: &Path, model: &ModelFile) -> Result<Self, EngineError> {
        let model = ModelIdentity::of(model);
        Ok(json_file::read(FileRole::Lossy, path, VERSION, |this: &Self| match this.model == model {
            true => Ok(()),
            false => Err(format!("made for {}, but the model is {model}", this.model)),
        })?)
    }

    /// Writes it to `path`, replacing an existing file once everything is written.
    ///
    /// # Errors
    /// [`EngineError::File`] with the system's reason.
    pub fn write(&self, path: &Path) -> Result<(), EngineError> {
        Ok(json_file::write(FileRole::Lossy, &FILE, path, self)?)
    }
}
