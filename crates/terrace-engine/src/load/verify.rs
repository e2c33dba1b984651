//! Verifying what is read: checksums of the whole model, made by reading it once, and kept for later
//! loads of the same files.

use super::header::Header;
use super::progress::LoadProgress;
use super::scene::PlanInput;
use super::weights::Loaded;
use crate::error::EngineError;
use crate::options::Options;
use std::ops::ControlFlow;
use terrace_model::identity::FileState;
use terrace_model::{ByteSize, ModelFile, TensorInfo};
use terrace_plan::model::{TensorClass, classify_all};
use terrace_store::checksums::{ChecksumFile, Unit, count};
use terrace_store::identity::{file_identity, file_state};
use terrace_store::{Store, StoreError};

/// Has everything that the store reads from now on compared with checksums: those that were kept, or
/// those of the files as they are now. `progress` is called while these are made, and may end it.
/// Problems with keeping them are warnings.
///
/// # Errors
/// Errors of the store; [`EngineError::Cancelled`].
pub fn begin(
    loaded: &Loaded,
    scene: &PlanInput<'_>,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    let Some(weights) = &loaded.weights else { return Ok(()) };
    let units = units(&scene.file);
    let header = scene.ground.header;
    let kept = kept(header, scene.options);
    let mut store = weights.store();
    let read = kept.as_ref().and_then(|kept| {
        kept.read(count(&units)).unwrap_or_else(|error| {
            tracing::warn!("{error}; the checksums are made again");
            None
        })
    });
    let sums = match read {
        Some(sums) => sums,
        None => {
            let sums = make(&mut store, &units, progress)?;
            if let Some(kept) = &kept {
                keep(kept, header, &sums);
            }
            sums
        }
    };
    Ok(store.verify(&units, &sums)?)
}

/// Reads the whole model once.
fn make(
    store: &mut Store,
    units: &[Unit],
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<Vec<u32>, EngineError> {
    let total = ByteSize(units.iter().map(|unit| unit.extent.len).sum());
    tracing::info!("reading {total} to make checksums");
    match store.checksums(units, &mut |done| progress(LoadProgress { done, total })) {
        Err(StoreError::Cancelled { .. }) => Err(EngineError::Cancelled),
        other => Ok(other?),
    }
}

/// The file of the checksums. `None` if nothing is kept between runs.
fn kept(header: &Header, options: &Options) -> Option<ChecksumFile> {
    let dir = options.user.checksums()?;
    let states: Option<Vec<FileState>> = header.states.iter().copied().collect();
    match (file_identity(&header.file), states) {
        (Ok(identity), Some(states)) => Some(ChecksumFile::new(&dir, identity, &states)),
        (Err(error), _) => {
            tracing::warn!("checksums are not kept: {error}");
            None
        }
        (_, None) => None,
    }
}

/// Keeps checksums, unless a file was written to while they were made.
fn keep(kept: &ChecksumFile, header: &Header, sums: &[u32]) {
    for (shard, state) in header.file.shards.iter().zip(&header.states) {
        let unchanged = file_state(&shard.path).is_ok_and(|now| Some(now) == *state);
        if !unchanged {
            tracing::warn!(
                "{} was written to while it was read: its checksums are not kept",
                shard.path.display()
            );
            return;
        }
    }
    match kept.write(sums) {
        Ok(()) => tracing::info!("checksums are kept in {}", kept.path().display()),
        Err(error) => tracing::warn!("cannot keep checksums: {error}"),
    }
}

/// The tensors, in the order of their places, with the parts that are read on their own.
fn units(file: &ModelFile) -> Vec<Unit> {
    let unit = |(tensor, class): (&TensorInfo, TensorClass)| {
        let [_, rows, experts, _] = tensor.shape.0;
        let parts = match class {
            TensorClass::Expert => experts,
            // Rows are looked up one by one.
            TensorClass::TokenEmbedding => rows,
            _ => 1,
        };
        let whole = parts == 0 || !tensor.extent.len.is_multiple_of(parts);
        Unit {
            name: tensor.name.as_str().into(),
            extent: tensor.extent,
            parts: if whole { 1 } else { parts },
        }
    };
    let mut units: Vec<Unit> = file.tensors.iter().zip(classify_all(file)).map(unit).collect();
    units.retain(|unit| unit.extent.len > 0);
    units.sort_by_key(|unit| unit.extent);
    units
}
