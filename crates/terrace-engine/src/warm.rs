//! Warm start: brings the experts that are probably used most, as copies into the slots of devices and
//! into those in RAM.

use crate::error::EngineError;
use crate::load::progress::LoadProgress;
use std::ops::ControlFlow;
use terrace_backend::Weights;
use terrace_backend::warm::{FirstUses, read_hottest};
use terrace_lanes::Lanes;
use terrace_model::ModelFile;
use terrace_plan::model::expert_groups;
use terrace_store::Store;

/// Fills devices with the experts with the most uses as far as they have room, and has the next
/// ones read in the background.
///
/// # Errors
/// Errors of the store; [`EngineError::Cancelled`] if `progress` ends it.
pub fn begin(
    model: &ModelFile,
    weights: &Weights,
    first: &FirstUses,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    {
        let (mut store, mut lanes) = (weights.store(), Lanes::of(weights));
        if let Some(lanes) = lanes.get_mut() {
            fill(lanes, model, first, &mut store, progress)?;
        }
    }
    Ok(read_hottest(weights, first)?)
}

/// Fills devices with the experts that were used most.
fn fill(
    lanes: &mut Lanes,
    model: &ModelFile,
    first: &FirstUses,
    store: &mut Store,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    for group in expert_groups(model) {
        if let Some((_, counts)) = first.iter().find(|(layer, _)| *layer == group.layer) {
            lanes.assume(group.layer, counts, group.top_k(model));
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
