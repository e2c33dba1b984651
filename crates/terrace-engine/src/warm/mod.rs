//! Warm start: reads ahead the experts that earlier runs used most, and counts uses for the next
//! run.

mod file;
#[cfg(fuzzing)]
pub mod fuzzing;

use crate::error::EngineError;
use crate::load::progress::LoadProgress;
use file::{LayerCounts, UsageFile};
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use terrace_backend::{BackendError, Cut, ExpertUsage, Lanes, Layout, Weights};
use terrace_model::{ByteSize, ExpertId, LayerId, ModelFile};
use terrace_plan::model::expert_groups;
use terrace_store::identity::file_identity;
use terrace_store::{BlockId, Store};

/// Weight of one use in the file. Halved with every run, it vanishes after seven.
const USE: u64 = 64;

/// Statistics of a loaded model's experts. Saved on drop, hence also when a run fails or is
/// interrupted.
pub struct WarmStart {
    file: UsageFile,
    /// The file's contents at the start.
    before: Vec<LayerCounts>,
    weights: Arc<Weights>,
}

impl WarmStart {
    /// Fills devices with the hottest experts of earlier runs as far as they have room, has the
    /// next hottest read in the background, and starts counting. `None` for models without managed
    /// experts. `dir` is the directory of statistics; problems with them are warnings.
    ///
    /// # Errors
    /// Errors of the store; [`EngineError::Cancelled`] if `progress` ends it.
    pub fn begin(
        dir: &Path,
        model: &ModelFile,
        weights: &Arc<Weights>,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Option<Self>, EngineError> {
        let usage = ExpertUsage::new(&weights.layout());
        if usage.layers().next().is_none() {
            return Ok(None);
        }
        let identity = match file_identity(model) {
            Ok(identity) => identity,
            Err(error) => {
                tracing::warn!("expert statistics are not kept: {error}");
                return Ok(None);
            }
        };
        let file = UsageFile::new(dir, identity);
        let before = file.read(&usage).unwrap_or_else(|error| {
            tracing::warn!("{error}; the file will be rewritten");
            Vec::new()
        });
        let blocks = {
            let (mut store, mut lanes) = (weights.store(), weights.lanes());
            if let Some(lanes) = lanes.as_mut() {
                fill(lanes, model, &before, &mut store, progress)?;
            }
            let elsewhere = |layer, expert| lanes.as_ref().is_some_and(|lanes| lanes.holds(layer, expert));
            hottest(&before, &weights.layout(), &store, room(&store), elsewhere)
        };
        tracing::debug!(blocks = blocks.len(), "reading in the background what earlier runs used most");
        weights.store().fill(blocks).map_err(BackendError::from)?;
        weights.observer().usage = Some(usage);
        Ok(Some(Self { file, before, weights: Arc::clone(weights) }))
    }

    /// Saves the counts so far. A failure is a warning.
    pub fn save(&self) {
        let observer = self.weights.observer();
        let Some(usage) = observer.usage.as_ref().filter(|usage| !usage.is_empty()) else { return };
        let layers = faded(&self.before, usage);
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

/// Reads how often earlier runs used each expert, by layer. Empty if that is not known.
pub fn earlier(dir: &Path, model: &ModelFile, weights: &Weights) -> Vec<(LayerId, Vec<u64>)> {
    let usage = ExpertUsage::new(&weights.layout());
    let Ok(identity) = file_identity(model) else { return Vec::new() };
    // A file that cannot be read is reported by `begin`.
    let layers = UsageFile::new(dir, identity).read(&usage).unwrap_or_default();
    layers.into_iter().map(|counts| (LayerId(counts.layer), counts.counts)).collect()
}

/// Fills devices with the experts that were used most.
fn fill(
    lanes: &mut Lanes,
    model: &ModelFile,
    before: &[LayerCounts],
    store: &mut Store,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    for group in expert_groups(model) {
        if let Some(counts) = before.iter().find(|counts| counts.layer == group.layer.0) {
            lanes.assume(group.layer, &counts.counts, group.top_k(model));
        }
    }
    let total = lanes.left_to_fill();
    let mut cancelled = false;
    lanes.fill(None, store, &mut |done| {
        let told = progress(LoadProgress { done, total });
        cancelled = told.is_break();
        told
    })?;
    if cancelled { Err(EngineError::Cancelled) } else { Ok(()) }
}

/// Bytes of slots to fill. The rest is left for experts that a prompt needs in passing, so that
/// little of what is filled is evicted at once.
fn room(store: &Store) -> ByteSize {
    ByteSize(store.capacity().bytes() / 8 * 7)
}

/// Adds new counts to half of the old ones.
fn faded(before: &[LayerCounts], usage: &ExpertUsage) -> Vec<LayerCounts> {
    let new = |(layer, counts): (LayerId, &[u64])| {
        let old = before.iter().find(|old| old.layer == layer.0 && old.counts.len() == counts.len());
        let old = |expert: usize| old.map_or(0, |old| old.counts[expert] / 2);
        let counts = (0..counts.len()).map(|e| counts[e].saturating_mul(USE).saturating_add(old(e)));
        LayerCounts { layer: layer.0, counts: counts.collect() }
    };
    usage.layers().map(new).collect()
}

/// Blocks of the experts with the largest shares of their layers' uses, hottest first, that fit in
/// `room`. Shares are used because layers are not used equally: in a prompt, the last layer
/// computes only the last token. Experts that are `elsewhere` are left out.
fn hottest(
    layers: &[LayerCounts],
    layout: &Layout,
    store: &Store,
    room: ByteSize,
    elsewhere: impl Fn(LayerId, u32) -> bool,
) -> Vec<BlockId> {
    let mut experts: Vec<(f64, LayerId, ExpertId)> = Vec::new();
    for layer in layers {
        let all: f64 = layer.counts.iter().map(|&count| count as f64).sum();
        for (expert, &count) in (0u32..).zip(&layer.counts) {
            if count > 0 && !elsewhere(LayerId(layer.layer), expert) {
                experts.push((count as f64 / all, LayerId(layer.layer), ExpertId(expert)));
            }
        }
    }
    experts.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal));
    let (mut blocks, mut left) = (Vec::new(), room.bytes());
    for (_, layer, expert) in experts {
        let tensors = layout.tensors().iter().filter(|tensor| tensor.layer == Some(layer));
        let has = |cut: Cut| matches!(cut, Cut::PerExpert { experts } if expert.0 < experts);
        let own = tensors.filter(|tensor| has(tensor.cut)).map(|tensor| tensor.block(expert.0));
        let before = blocks.len();
        blocks.extend(own);
        let size: u64 = blocks[before..].iter().map(|block| store.slot_size(*block).bytes()).sum();
        let Some(rest) = left.checked_sub(size) else {
            blocks.truncate(before);
            break;
        };
        left = rest;
    }
    blocks
}
