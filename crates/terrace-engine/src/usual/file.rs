//! Lengths of a model's prompts and answers, in a file that may be deleted at any time.

use serde::{Deserialize, Serialize};
use std::path::Path;
use terrace_model::identity::FileIdentity;
use terrace_plan::{Expected, ExpectedSource};
use terrace_store::model_cache::ModelCacheFile;
use terrace_store::{FileKind, KeptFileError};

const KIND: FileKind =
    FileKind { what: "a file of usual lengths", format: "terrace-usual-lengths", version: 1 };
/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 4 << 10;
/// Weight of one answer in the file. Halved with every run, it vanishes after seven.
const ANSWER: u64 = 64;
/// Maximum length that is believed, in tokens: more than any context has.
const LONGEST: u64 = 1 << 26;

/// Totals of all answers, earlier runs with less weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of runs.
    runs: u32,
    answers: u64,
    /// Evaluated tokens of their prompts.
    prompt_tokens: u64,
    /// Generated tokens.
    output_tokens: u64,
}

impl Totals {
    /// Adds an answer.
    pub fn count(&mut self, prompt: usize, output: usize) {
        let weighted = |tokens: usize| (tokens as u64).saturating_mul(ANSWER);
        self.runs = 1;
        self.answers = self.answers.saturating_add(ANSWER);
        self.prompt_tokens = self.prompt_tokens.saturating_add(weighted(prompt));
        self.output_tokens = self.output_tokens.saturating_add(weighted(output));
    }

    /// Whether there were no answers.
    pub const fn is_empty(&self) -> bool {
        self.answers == 0
    }

    /// Adds those of a run to half of these.
    pub const fn followed_by(&self, run: &Self) -> Self {
        Self {
            runs: self.runs.saturating_add(run.runs),
            answers: (self.answers / 2).saturating_add(run.answers),
            prompt_tokens: (self.prompt_tokens / 2).saturating_add(run.prompt_tokens),
            output_tokens: (self.output_tokens / 2).saturating_add(run.output_tokens),
        }
    }

    /// The mean lengths, rounded such that they rarely change; `None` if there were no answers.
    pub fn expected(&self) -> Option<Expected> {
        let mean = |tokens: u64| rounded(tokens.checked_div(self.answers)?);
        Some(Expected {
            prompt: mean(self.prompt_tokens)?,
            output: mean(self.output_tokens)?,
            source: ExpectedSource::Earlier { runs: self.runs },
        })
    }
}

/// Rounds a length to the closest power of two, or to the middle between two: a plan should change
/// when the work does, and not with every answer. At least 1; `None` if it is not believed.
fn rounded(tokens: u64) -> Option<u32> {
    let tokens = tokens.max(1);
    if tokens > LONGEST {
        return None;
    }
    let below: u64 = 1 << tokens.ilog2();
    let steps = [below, below + below / 2, 2 * below];
    let closest = steps.into_iter().min_by_key(|step| step.abs_diff(tokens));
    closest.and_then(|step| u32::try_from(step).ok())
}

/// The file of one model.
#[derive(Debug)]
pub struct UsualFile(ModelCacheFile);

#[derive(Serialize, Deserialize)]
struct Wire {
    format: String,
    version: u32,
    model: FileIdentity,
    #[serde(flatten)]
    totals: Totals,
}

impl UsualFile {
    /// The model's file in `dir`.
    pub fn new(dir: &Path, model: FileIdentity) -> Self {
        Self(ModelCacheFile::new(dir, model, MAX_FILE))
    }

    /// Where it is.
    #[cfg(test)]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads the totals; zero if there is no file.
    ///
    /// # Errors
    /// The system's reason, or why the file is not this model's.
    pub fn read(&self) -> Result<Totals, KeptFileError> {
        let Some(wire) = self.0.read(&KIND, |wire: &Wire| &wire.model)? else { return Ok(Totals::default()) };
        if wire.totals.runs == 0 || wire.totals.expected().is_none() {
            return Err(self.0.wrong("its numbers are of no run"));
        }
        Ok(wire.totals)
    }

    /// Replaces the file, and removes files of models that have not been used for long.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, totals: &Totals) -> Result<(), KeptFileError> {
        let wire = Wire {
            format: KIND.format.into(),
            version: KIND.version,
            model: self.0.model().clone(),
            totals: *totals,
        };
        let text = serde_json::to_string(&wire).expect("totals are plain data");
        self.0.write(&text)
    }
}
