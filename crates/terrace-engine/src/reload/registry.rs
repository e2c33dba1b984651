//! Records where every weight comes from.

use super::budget::WeightBudget;
use crate::load::split::head_group;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_backend::{Home, Terrace};
use terrace_ggml::llama::{Model, Weight};
use terrace_model::identity::FileState;
use terrace_model::{ByteSize, Extent, FileIndex, ModelFile, TensorInfo};
use terrace_plan::model::{TensorClass, classify_all};

/// Source of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Provenance {
    pub path: PathBuf,
    /// The file's state when the tensor was taken from it.
    pub state: Option<FileState>,
    /// Name, type, shape, and the extent in the file (whose index has no meaning here).
    pub info: TensorInfo,
}

/// A tensor of the model.
pub struct Entry {
    /// Provenance at load.
    pub original: Provenance,
    /// Provenance now.
    pub current: Provenance,
    /// Its extents in the store's files, at load and now. Meaningful only for streamed tensors.
    pub loaded: Extent,
    pub streamed: Extent,
    /// llama.cpp's tensors for it: none, one, or two if llama.cpp made two of one (tied
    /// embeddings).
    pub weights: Vec<Weight>,
    pub class: TensorClass,
    /// Granularity of its slice borders, if it differs from the one at load.
    pub cut: Option<u64>,
    /// True if the loaded bytes still exist: the file that they are computed or streamed from has
    /// not been written to.
    pub intact: bool,
}

impl Entry {
    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.original.info.name
    }

    /// Returns true if its bytes come from the store when they are needed.
    pub fn is_streamed(&self) -> bool {
        self.weights.iter().any(is_streamed)
    }

    /// Returns true if it is computed from a mapping of its file.
    pub fn is_mapped(&self) -> bool {
        self.weights.iter().any(|weight| Terrace::home(weight) == Home::Mapped)
    }

    /// Returns true if the tensor can go on with its bytes after its file changed, `in_place` or as another file
    /// of its name.
    pub fn keeps_bytes(&self, in_place: bool) -> bool {
        !(in_place && (self.is_streamed() || self.is_mapped()))
    }

    /// Why the tensor can never be replaced; `None` if it can.
    pub fn fixed(&self) -> Option<String> {
        if self.weights.is_empty() {
            return Some(
                "llama.cpp has no tensor of this name: it was left out of the load, or merged into another"
                    .into(),
            );
        }
        let converted = self.weights.iter().find(|weight| Terrace::home(weight) == Home::Converted);
        converted.map(|weight| format!("llama.cpp has repacked it into its own layout ({})", weight.place()))
    }
}

/// Returns true if the tensor's bytes come from the store when they are needed.
pub fn is_streamed(weight: &Weight) -> bool {
    Terrace::home(weight) == Home::Streamed
}

/// All tensors of a loaded model.
pub struct Registry {
    pub entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// States of files as of the last reload.
    seen: HashMap<PathBuf, FileState>,
    /// Files of the store that reloads opened.
    pub opened: BTreeSet<FileIndex>,
    /// Headers of donors, so that a sweep parses each one once.
    pub donors: HashMap<PathBuf, (FileState, Arc<ModelFile>)>,
    /// Rows of a group of heads; `None` if the model's metadata does not say.
    pub head_group: Option<u64>,
    /// Number of devices that sliced tensors are cut for.
    pub slices: u64,
    /// The RAM budget, if there is one.
    pub budget: Option<WeightBudget>,
    /// True if reads are verified, so that reports have hashes.
    pub verifies: bool,
    /// Number of times that tensors were replaced.
    pub epoch: u64,
    /// A file that was overwritten while tensors streamed from it, and whose new contents were
    /// refused, with its state then.
    pub overwritten: Option<(PathBuf, FileState)>,
    /// Prefixes (`blk.3.`) of blocks whose weights are not all sliced at the same borders, because
    /// memory was short.
    pub unsliced: BTreeSet<String>,
}

impl Registry {
    /// Lists a model's tensors, loaded from files in these states.
    pub fn new(file: &ModelFile, states: &[Option<FileState>], model: &Arc<Model>) -> Self {
        let mut weights: HashMap<String, Vec<Weight>> = HashMap::new();
        for weight in Weight::all(model) {
            weights.entry(weight.name()).or_default().push(weight);
        }
        let classes = classify_all(file);
        let entries: Vec<Entry> = file
            .tensors
            .iter()
            .zip(classes)
            .map(|(info, class)| {
                let original = Provenance {
                    path: file.shards[info.extent.file.index()].path.clone(),
                    state: states.get(info.extent.file.index()).copied().flatten(),
                    info: info.clone(),
                };
                Entry {
                    current: original.clone(),
                    original,
                    loaded: info.extent,
                    streamed: info.extent,
                    weights: weights.remove(&info.name).unwrap_or_default(),
                    class,
                    cut: None,
                    intact: true,
                }
            })
            .collect();
        let by_name = entries.iter().enumerate().map(|(i, e)| (e.original.info.name.clone(), i)).collect();
        let paths = file.shards.iter().map(|shard| shard.path.clone()).zip(states);
        let seen = paths.filter_map(|(path, state)| Some((path, (*state)?))).collect();
        Self {
            entries,
            by_name,
            seen,
            opened: BTreeSet::new(),
            donors: HashMap::new(),
            head_group: head_group(file),
            slices: 0,
            budget: None,
            verifies: false,
            epoch: 0,
            overwritten: None,
            unsliced: BTreeSet::new(),
        }
    }

    /// Index of a tensor's entry.
    pub fn index_of(&self, tensor: &str) -> Option<usize> {
        self.by_name.get(tensor).copied()
    }

    /// Returns true if a file's state equals the one last recorded.
    pub fn is_as_seen(&self, path: &Path, state: &FileState) -> bool {
        self.seen.get(path).is_some_and(|seen| seen.same_bytes(state))
    }

    /// Records the states of files.
    pub fn note_seen(&mut self, states: Vec<(PathBuf, FileState)>) {
        self.seen.extend(states);
    }

    /// Forgets that a file was overwritten, unless tensors still stream bytes of it that are gone.
    pub fn settle_overwritten(&mut self) {
        self.overwritten.take_if(|(path, state)| {
            !self.entries.iter().any(|entry| {
                (entry.is_streamed() || entry.is_mapped())
                    && entry.current.path == *path
                    && !entry.current.state.is_some_and(|taken| taken.same_bytes(state))
                    && !self.seen.get(path).is_some_and(|seen| seen.same_bytes(state))
            })
        });
    }

    /// Main memory that replaced tensors take beside what was loaded.
    pub fn own_memory(&self) -> ByteSize {
        self.entries.iter().flat_map(|entry| &entry.weights).map(Weight::own_memory).sum()
    }

    /// The files that tensors come from now.
    pub fn paths(&self) -> Vec<PathBuf> {
        let paths: BTreeSet<&PathBuf> = self.entries.iter().map(|entry| &entry.current.path).collect();
        paths.into_iter().cloned().collect()
    }

    pub fn provenance(&self) -> Vec<Provenance> {
        self.entries.iter().map(|entry| entry.current.clone()).collect()
    }
}
