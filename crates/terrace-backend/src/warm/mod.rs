//! Statistics of a model's experts, from run to run: a run reads those ahead that earlier ones used
//! most, and counts its own uses for the next.

mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
mod start;

pub use file::{read_learned, to_statistics};
pub use start::{FirstUses, first_uses, read_hottest};

use crate::observe::usage::{ExpertUsage, LayerUsage};
use file::{LayerCounts, UsageFile};
use std::path::Path;
use std::sync::Arc;
use terrace_model::ModelFile;
use terrace_store::KeptFileError;
use terrace_store::identity::file_identity;

/// Weight of one use in the file. Halved with every run, it vanishes after seven.
const USE: u64 = 64;

/// Statistics of a loaded model's experts.
#[derive(Debug)]
pub struct Statistics {
    file: UsageFile,
    /// The file's contents at the start.
    before: Vec<LayerCounts>,
    usage: Arc<ExpertUsage>,
}

impl Statistics {
    /// Reads what earlier runs counted. `dir` is the directory of statistics. Also returns what is
    /// wrong with the file, which is written anew then.
    ///
    /// # Errors
    /// The system's reason why nothing can be kept for the model.
    pub fn open(
        dir: &Path,
        model: &ModelFile,
        usage: &Arc<ExpertUsage>,
    ) -> std::io::Result<(Self, Option<KeptFileError>)> {
        let file = UsageFile::new(dir, file_identity(model)?);
        let (before, wrong) = match file.read(usage) {
            Ok(before) => (before, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Ok((Self { file, before, usage: Arc::clone(usage) }, wrong))
    }

    /// Saves the counts so far, if there are any.
    ///
    /// # Errors
    /// The system's reason, or too many experts for a file.
    pub fn save(&self) -> Result<(), KeptFileError> {
        if self.usage.is_empty() {
            return Ok(());
        }
        self.file.write(faded(&self.before, &self.usage))
    }
}

/// Adds new counts to half of the old ones. A layer that was not computed here keeps what it has.
fn faded(before: &[LayerCounts], usage: &ExpertUsage) -> Vec<LayerCounts> {
    let new = |LayerUsage { layer, calls, all, .. }: LayerUsage| {
        let old = before.iter().find(|old| old.layer == layer.0 && old.counts.len() == all.len());
        let less = if calls == 0 { 1 } else { 2 };
        let old = |expert: usize| old.map_or(0, |old| old.counts[expert] / less);
        let counts = (0..all.len()).map(|e| all[e].saturating_mul(USE).saturating_add(old(e)));
        LayerCounts { layer: layer.0, counts: counts.collect() }
    };
    usage.layers().map(new).collect()
}
