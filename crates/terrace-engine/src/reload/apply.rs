//! Applies a reload, between two batches. Nothing in it fails half-way, except that there may be no
//! memory to slice the siblings of swapped tensors again.

use super::error::ReloadError;
use super::registry::{Entry, Provenance, Registry, is_streamed};
use super::report::{ReloadReport, Swapped, state};
use super::siblings::{self, LeftBehind};
use super::stage::{NewBytes, Ready, Staged, Step};
use std::collections::BTreeSet;
use terrace_backend::Weights;
use terrace_ggml::DataType;
use terrace_ggml::llama::Context;
use terrace_model::{ByteSize, Extent, FileIndex};

/// Swaps all staged tensors. Tensors that return go first, so that their memory is free before
/// others need some; within each kind, those whose type decides the borders of others go first.
///
/// # Errors
/// Nothing was swapped. The error beside a report is [`ReloadError::LeftBehind`]: what it reports was
/// swapped.
pub fn swap(
    registry: &mut Registry,
    weights: Option<&Weights>,
    context: &mut Context,
    mut staged: Staged,
) -> Result<(ReloadReport, Option<ReloadError>), ReloadError> {
    if let Some(weights) = weights
        && let Err(error) = restream(registry, weights, &staged.steps)
    {
        staged.files.close(Some(weights));
        return Err(error);
    }
    let mut report =
        ReloadReport { unchanged: std::mem::take(&mut staged.unchanged), ..ReloadReport::default() };
    staged.steps.sort_by_key(|step| {
        let last = siblings::is_last_matrix(registry.entries[step.entry].name());
        (!matches!(step.to, Ready::Original), !last)
    });
    let mut swapped = Vec::new();
    for step in staged.steps {
        swapped.push(step.entry);
        report.swapped.push(swap_one(registry, context, step));
    }
    let (resplit, left) = siblings::resync(registry, context, &swapped);
    report.resplit = resplit;
    for (tensor, &entry) in report.swapped.iter_mut().zip(&swapped) {
        tensor.state = state_of(&registry.entries[entry]);
    }
    if let Some(weights) = weights {
        let names: Vec<String> = report.swapped.iter().map(|swapped| swapped.tensor.clone()).collect();
        weights.moved(&names);
    }
    registry.note_seen(staged.seen);
    registry.settle_overwritten();
    if !report.swapped.is_empty() {
        registry.epoch += 1;
    }
    if let Some(weights) = weights {
        close_unused(registry, weights, staged.files.indices().collect());
    }
    let left = left.map(|LeftBehind { tensor, source }| {
        let swapped = report.swapped.len();
        ReloadError::LeftBehind { swapped, tensor, source }
    });
    Ok((report, left))
}

fn state_of(entry: &Entry) -> &'static str {
    let own = entry.weights.iter().find(|weight| !is_streamed(weight));
    own.map_or("streamed", |weight| state(weight.seat()))
}

/// Applies the store's part, which can refuse what its slots cannot hold and has then changed
/// nothing.
fn restream(registry: &Registry, weights: &Weights, steps: &[Step]) -> Result<(), ReloadError> {
    let changes: Vec<(String, Extent, DataType)> = steps
        .iter()
        .filter_map(|step| {
            let entry = &registry.entries[step.entry];
            let name = entry.original.info.name.clone();
            match &step.to {
                Ready::Original if entry.is_streamed() => Some((name, entry.loaded, original_type(entry))),
                Ready::Found { extent: Some(extent), ty, .. } => Some((name, *extent, *ty)),
                _ => None,
            }
        })
        .collect();
    if changes.is_empty() { Ok(()) } else { Ok(weights.replace(&changes)?) }
}

fn original_type(entry: &Entry) -> DataType {
    DataType::from_id(entry.original.info.ty.id).expect("the reader accepts known types only")
}

fn swap_one(registry: &mut Registry, context: &mut Context, step: Step) -> Swapped {
    let entry = &mut registry.entries[step.entry];
    let before = entry.current.info.ty.name.clone();
    let (mut read, mut sha256) = (0, None);
    match step.to {
        Ready::Original => {
            for weight in &mut entry.weights {
                weight.restore(context);
            }
            entry.current = entry.original.clone();
            entry.streamed = entry.loaded;
            entry.cut = None;
        }
        Ready::Found { found, ty, extent, bytes } => {
            let mut bytes = bytes.into_iter();
            for weight in &mut entry.weights {
                if is_streamed(weight) {
                    weight.relabel(context, ty);
                } else if let Some(bytes) = bytes.next() {
                    match bytes {
                        NewBytes::Main(pages) => weight.put(context, ty, pages),
                        NewBytes::Device(prepared) => weight.take(context, prepared),
                    }
                    read = found.info.extent.len;
                }
            }
            if let Some(extent) = extent {
                entry.streamed = extent;
            }
            if !entry.intact && found.path == entry.original.path {
                // The loaded bytes are gone, so this is what the tensor returns to from now on.
                entry.loaded = entry.streamed;
            }
            sha256 = found.sha256;
            let (path, state) = (found.path, Some(found.state));
            entry.current = Provenance { path, state, info: found.info };
        }
    }
    Swapped {
        tensor: entry.original.info.name.clone(),
        from: before,
        to: entry.current.info.ty.name.clone(),
        path: entry.current.path.clone(),
        offset: entry.current.info.extent.offset,
        size: ByteSize(entry.current.info.extent.len),
        sha256,
        bytes: ByteSize(read),
        state: state_of(entry),
    }
}

/// Closes the files, opened now or by earlier reloads, from which no tensor streams, either now or
/// after it returns.
fn close_unused(registry: &mut Registry, weights: &Weights, opened: Vec<FileIndex>) {
    let needed: BTreeSet<FileIndex> = registry
        .entries
        .iter()
        .filter(|entry| entry.is_streamed())
        .flat_map(|entry| [entry.streamed.file, entry.loaded.file])
        .collect();
    registry.opened.extend(opened);
    registry.opened.retain(|index| {
        if needed.contains(index) {
            return true;
        }
        if let Err(error) = weights.store().remove_file(*index) {
            tracing::warn!("cannot close an unused file: {error}");
        }
        false
    });
}
