//! Streamed tensors of a file that was replaced by another: found and checked while the program
//! computes, and taken over between two of its graphs.

use crate::files::{Header, open_path};
use crate::model::Model;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use terrace_backend::Weights;
use terrace_ggml::DataType;
use terrace_model::identity::FileState;
use terrace_model::{Extent, FileIndex, TensorInfo};
use terrace_platform::file::Positioned;
use terrace_store::identity::{file_state, now};

/// A change of a model.
pub struct Change {
    /// The model's new files.
    pub header: Arc<Header>,
    /// The files that changed: their indices in the model.
    files: Vec<usize>,
    /// The streamed tensors that come from these.
    tensors: Vec<(String, Extent, DataType)>,
}

/// Finds what changed since the model's files were read. `None` if nothing did.
///
/// # Errors
/// Why the model must stay as it is.
pub fn find(model: &Model) -> Result<Option<Change>, String> {
    let old = &model.header;
    let mut files = Vec::new();
    for (index, (shard, before)) in old.model.shards.iter().zip(&old.states).enumerate() {
        let state = state_of(&shard.path)?;
        if state.same_bytes(before) {
            continue;
        }
        let path = shard.path.display();
        if state.same_file(before) {
            return Err(format!(
                "{path} was written to, or its attributes were changed: a model is replaced by moving another file to its place"
            ));
        }
        if !state.is_settled(now()) {
            return Err(format!("{path} has just been made: try again in a moment"));
        }
        files.push(index);
    }
    let Some(first) = old.model.shards.first().filter(|_| !files.is_empty()) else { return Ok(None) };
    let new = open_path(&first.path).ok_or_else(|| format!("{} is no model", first.path.display()))?;
    let tensors = compare(model, &new, &files)?;
    let header = Arc::new(new);
    Ok(Some(Change { header, files, tensors }))
}

fn state_of(path: &Path) -> Result<FileState, String> {
    file_state(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Checks that the new files have the same tensors, and those that the program holds with the same
/// bytes. Returns the streamed ones of the files that changed.
fn compare(model: &Model, new: &Header, files: &[usize]) -> Result<Vec<(String, Extent, DataType)>, String> {
    let (old, of) = (&model.header, |header: &Header| header.model.tensors.len());
    if of(old) != of(new) || old.files.len() != new.files.len() {
        return Err("the new file has other tensors than the model".into());
    }
    let found: HashMap<&str, &TensorInfo> =
        new.model.tensors.iter().map(|info| (info.name.as_str(), info)).collect();
    let mut streamed = Vec::new();
    for before in old.model.tensors.iter().filter(|info| files.contains(&info.extent.file.index())) {
        let name = terrace_model::printable(&before.name);
        let same = |after: &&&TensorInfo| {
            after.ty.id == before.ty.id
                && after.shape == before.shape
                && after.extent.file == before.extent.file
        };
        let after = found.get(before.name.as_str()).filter(same);
        let after = after.ok_or_else(|| format!("{name} has another type or shape in the new file"))?;
        if model.is_streamed(&before.name) {
            let ty = DataType::from_id(after.ty.id).ok_or_else(|| format!("{name}: unknown type"))?;
            streamed.push((before.name.clone(), after.extent, ty));
        } else if !equal(
            &old.files[before.extent.file.index()].0,
            before.extent,
            &new.files[after.extent.file.index()].0,
            after.extent,
        ) {
            return Err(format!(
                "{name} has other values in the new file, and the program holds it: restart the program"
            ));
        }
    }
    Ok(streamed)
}

/// Returns true if two files have the same bytes in ranges of the same length.
fn equal(a: &File, of_a: Extent, b: &File, of_b: Extent) -> bool {
    const PIECE: u64 = 1 << 20;
    let mut bytes = [vec![0; PIECE as usize], vec![0; PIECE as usize]];
    (0..of_a.len).step_by(PIECE as usize).all(|done| {
        let len = (of_a.len - done).min(PIECE) as usize;
        let [left, right] = &mut bytes;
        a.read_exact_at(&mut left[..len], of_a.offset + done).is_ok()
            && b.read_exact_at(&mut right[..len], of_b.offset + done).is_ok()
            && left[..len] == right[..len]
    })
}

impl Change {
    /// Number of tensors that change.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Takes the tensors over, all of them or none. Call between graphs. `files` are the store's
    /// files of the model, by their index in it.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub fn apply(&self, weights: &Weights, files: &mut [FileIndex]) -> Result<(), String> {
        for &index in &self.files {
            let path = &self.header.model.shards[index].path;
            if !state_of(path)?.same_bytes(&self.header.states[index]) {
                return Err(format!("{} has changed once more", path.display()));
            }
        }
        let mut added: HashMap<usize, FileIndex> = HashMap::new();
        let failed = |added: &HashMap<usize, FileIndex>, error: String| {
            for &file in added.values() {
                // It has no blocks, and if the engine is gone nothing is read any more.
                let _ = weights.store().remove_file(file);
            }
            error
        };
        for &index in &self.files {
            let path = self.header.model.shards[index].path.clone();
            let file = weights.store().add_file(path);
            added.insert(index, file.map_err(|error| failed(&added, error.to_string()))?);
        }
        let moved = |(name, extent, ty): &(String, Extent, DataType)| {
            (name.clone(), Extent { file: added[&extent.file.index()], ..*extent }, *ty)
        };
        let changes: Vec<_> = self.tensors.iter().map(moved).collect();
        weights.replace(&changes).map_err(|error| failed(&added, error.to_string()))?;
        for (index, file) in added {
            let old = std::mem::replace(&mut files[index], file);
            // Nothing is in it any more.
            let _ = weights.store().remove_file(old);
        }
        Ok(())
    }
}
