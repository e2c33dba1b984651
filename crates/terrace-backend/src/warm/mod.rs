//! A run's part of a model's record, and its additions: the experts that earlier runs used most are
//! read ahead, and uses and lengths are counted for the next run.

mod learned;
mod start;

pub use learned::{read_learned, to_record};
pub use start::{FirstUses, first_uses, read_hottest};

use crate::observe::usage::{ExpertUsage, LayerUsage};
use std::path::Path;
use std::sync::Arc;
use terrace_model::ModelFile;
use terrace_store::KeptFileError;
use terrace_store::identity::file_identity;
use terrace_store::model_record::{LayerCounts, Lengths, ModelRecord, RecordFile, UsualLengths, WEIGHT};

/// The record of a model, and what this run adds to it.
#[derive(Debug)]
pub struct RunRecord {
    file: RecordFile,
    /// The record at the start.
    before: ModelRecord,
    /// Counts of this run; `None` if it counts no uses of experts.
    usage: Option<Arc<ExpertUsage>>,
    lengths: Lengths,
}

impl RunRecord {
    /// Reads what earlier runs counted. `dir` is the directory of records. Also returns what is
    /// wrong with the file, which is written anew then.
    ///
    /// # Errors
    /// The system's reason why nothing can be kept for the model.
    pub fn open(dir: &Path, model: &ModelFile) -> std::io::Result<(Self, Option<KeptFileError>)> {
        let file = RecordFile::new(dir, file_identity(model)?);
        let (before, wrong) = match file.read() {
            Ok(before) => (before, None),
            Err(error) => (ModelRecord::default(), Some(error)),
        };
        Ok((Self { file, before, usage: None, lengths: Lengths::default() }, wrong))
    }

    /// The lengths of earlier prompts and answers; `None` before the first.
    pub fn usual_lengths(&self) -> Option<UsualLengths> {
        self.before.lengths.usual()
    }

    /// Adds an answer: the tokens of its prompt that were evaluated, and those generated.
    pub fn count_answer(&mut self, evaluated: usize, generated: usize) {
        self.lengths.count(evaluated, generated);
    }

    /// Adds what is counted here to the record, whenever it is saved.
    pub fn count_uses(&mut self, usage: &Arc<ExpertUsage>) {
        self.usage = Some(Arc::clone(usage));
    }

    /// Saves the counts so far, if there are any. Nothing is counted twice.
    ///
    /// # Errors
    /// The system's reason, or too many experts for a file.
    pub fn save(&self) -> Result<(), KeptFileError> {
        let usage = self.usage.as_ref().filter(|usage| !usage.is_empty());
        if usage.is_none() && self.lengths.is_empty() {
            return Ok(());
        }
        self.file.update(|record| {
            if let Some(usage) = usage {
                record.experts = faded(&self.before.experts, usage);
            }
            if !self.lengths.is_empty() {
                record.lengths = self.before.lengths.followed_by(&self.lengths);
            }
        })
    }
}

/// Adds new counts to half of the old ones. A layer that was not computed here keeps what it has.
fn faded(before: &[LayerCounts], usage: &ExpertUsage) -> Vec<LayerCounts> {
    let new = |LayerUsage { layer, calls, all, .. }: LayerUsage| {
        let old = before.iter().find(|old| old.layer == layer.0 && old.counts.len() == all.len());
        let less = if calls == 0 { 1 } else { 2 };
        let old = |expert: usize| old.map_or(0, |old| old.counts[expert] / less);
        let counts = (0..all.len()).map(|e| all[e].saturating_mul(WEIGHT).saturating_add(old(e)));
        LayerCounts { layer: layer.0, counts: counts.collect() }
    };
    usage.layers().map(new).collect()
}
