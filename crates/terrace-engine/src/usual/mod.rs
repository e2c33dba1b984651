//! Usual lengths: what earlier runs of a model were asked and answered, for the next run's plan.

mod file;
#[cfg(test)]
mod file_tests;

use file::{Totals, UsualFile};
use std::path::Path;
use terrace_model::ModelFile;
use terrace_plan::Expected;
use terrace_store::identity::file_identity;

/// Lengths of a model's prompts and answers, from run to run. Saved on drop, hence also when a run
/// fails or is interrupted.
pub struct UsualLengths {
    file: UsualFile,
    /// The file's contents at the start.
    before: Totals,
    /// What this run adds.
    new: Totals,
}

impl UsualLengths {
    /// Reads what earlier runs counted. `None` if nothing can be kept for the model. `dir` is the
    /// directory of these files; problems with them are warnings.
    pub fn open(dir: &Path, model: &ModelFile) -> Option<Self> {
        let identity = match file_identity(model) {
            Ok(identity) => identity,
            Err(error) => {
                tracing::warn!("lengths of prompts and answers are not kept: {error}");
                return None;
            }
        };
        let file = UsualFile::new(dir, identity);
        let before = file.read().unwrap_or_else(|error| {
            tracing::warn!("{error}; the file will be rewritten");
            Totals::default()
        });
        Some(Self { file, before, new: Totals::default() })
    }

    /// What runs of the model usually do; `None` before the first answer.
    pub fn expected(&self) -> Option<Expected> {
        self.before.expected()
    }

    /// Counts an answer: the tokens of its prompt that were evaluated, and those generated.
    pub(crate) fn count(&mut self, evaluated: usize, generated: usize) {
        self.new.count(evaluated, generated);
    }

    /// Saves the counts so far. A failure is logged.
    pub fn save(&self) {
        if self.new.is_empty() {
            return;
        }
        if let Err(error) = self.file.write(&self.before.followed_by(&self.new)) {
            // Experts' statistics in the same directory warn of what is wrong with it.
            tracing::info!("cannot save the lengths of prompts and answers: {error}");
        }
    }
}

impl Drop for UsualLengths {
    fn drop(&mut self) {
        self.save();
    }
}
