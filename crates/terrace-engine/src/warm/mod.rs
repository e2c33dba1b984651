//! Warm start: reads ahead the experts that earlier runs used most, and counts uses for the next
//! run.

mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
mod start;

pub use file::{from_statistics, to_statistics};
pub use start::{FirstUses, begin, first_uses};

use file::{LayerCounts, UsageFile};
use std::path::Path;
use std::sync::Arc;
use terrace_backend::{ExpertUsage, LayerUsage};
use terrace_model::ModelFile;
use terrace_store::identity::file_identity;

/// Weight of one use in the file. Halved with every run, it vanishes after seven.
const USE: u64 = 64;

/// Statistics of a loaded model's experts. Saved on drop, hence also when a run fails or is
/// interrupted.
pub struct WarmStart {
    file: UsageFile,
    /// The file's contents at the start.
    before: Vec<LayerCounts>,
    usage: Arc<ExpertUsage>,
}

impl WarmStart {
    /// Reads what earlier runs counted. `None` if nothing can be kept for the model. `dir` is the
    /// directory of statistics; problems with them are warnings.
    pub fn open(dir: &Path, model: &ModelFile, usage: &Arc<ExpertUsage>) -> Option<Self> {
        let identity = match file_identity(model) {
            Ok(identity) => identity,
            Err(error) => {
                tracing::warn!("expert statistics are not kept: {error}");
                return None;
            }
        };
        let file = UsageFile::new(dir, identity);
        let before = file.read(usage).unwrap_or_else(|error| {
            tracing::warn!("{error}; the file will be rewritten");
            Vec::new()
        });
        Some(Self { file, before, usage: Arc::clone(usage) })
    }

    /// Saves the counts so far. A failure is a warning.
    pub fn save(&self) {
        if self.usage.is_empty() {
            return;
        }
        let layers = faded(&self.before, &self.usage);
        if let Err(error) = self.file.write(layers) {
            tracing::warn!("cannot save expert statistics: {error}");
        }
    }
}

impl Drop for WarmStart {
    fn drop(&mut self) {
        self.save();
    }
}

/// Adds new counts to half of the old ones.
fn faded(before: &[LayerCounts], usage: &ExpertUsage) -> Vec<LayerCounts> {
    let new = |LayerUsage { layer, all, .. }: LayerUsage| {
        let old = before.iter().find(|old| old.layer == layer.0 && old.counts.len() == all.len());
        let old = |expert: usize| old.map_or(0, |old| old.counts[expert] / 2);
        let counts = (0..all.len()).map(|e| all[e].saturating_mul(USE).saturating_add(old(e)));
        LayerCounts { layer: layer.0, counts: counts.collect() }
    };
    usage.layers().map(new).collect()
}
