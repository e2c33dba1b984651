//! The record of a loaded model.

use crate::options::{Mode, Options};
use std::sync::Arc;
use terrace_backend::ExpertUsage;
use terrace_backend::warm::RunRecord;
use terrace_model::ModelFile;
use terrace_plan::{Expected, ExpectedSource};

/// Facts about earlier runs of the model, and additions of this one. Saved on drop, hence also when a
/// run fails or is interrupted.
pub struct Record(RunRecord);

impl Record {
    /// Reads what earlier runs counted. `None` if nothing is kept for the model. Problems with the file
    /// are warnings.
    pub fn open(options: &Options, model: &ModelFile) -> Option<Self> {
        // Recorded traces are replayed from empty slots.
        let keeps = options.mode == Mode::Terrace
            && options.record.trace.is_none()
            && options.cache.warm_start != Some(false);
        match RunRecord::open(&options.user.records().filter(|_| keeps)?, model) {
            Ok((record, wrong)) => {
                if let Some(error) = wrong {
                    tracing::warn!("{error}; the file will be rewritten");
                }
                Some(Self(record))
            }
            Err(error) => {
                tracing::warn!("no record of the model is kept: {error}");
                None
            }
        }
    }

    /// Usual lengths in runs of the model; `None` before the first response.
    pub fn expected(&self) -> Option<Expected> {
        let usual = self.0.usual_lengths()?;
        let source = ExpectedSource::Earlier { runs: usual.runs };
        Some(Expected { prompt: usual.prompt, output: usual.output, source })
    }

    /// Counts of earlier runs.
    pub const fn before(&self) -> &RunRecord {
        &self.0
    }

    /// Adds what is counted here to the record, whenever it is saved.
    pub fn count_uses(&mut self, usage: &Arc<ExpertUsage>) {
        self.0.count_uses(usage);
    }

    /// Adds an answer: the tokens of its prompt that were evaluated, and those generated.
    pub fn count_answer(&mut self, evaluated: usize, generated: usize) {
        self.0.count_answer(evaluated, generated);
    }

    /// Saves the counts so far. A failure is a warning.
    pub fn save(&self) {
        if let Err(error) = self.0.save() {
            tracing::warn!("cannot save the model's record: {error}");
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.save();
    }
}
