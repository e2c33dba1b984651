//! Which tensors are to come from where: what changed on disk, or what was asked for.

use super::error::{Refusal, ReloadError, all_or_nothing};
use super::registry::Registry;
use super::replacement::{Replacement, Source};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_ggml::gguf::{self, GgufError};
use terrace_model::identity::FileState;
use terrace_model::{ModelFile, TensorInfo};
use terrace_store::identity::file_state;

/// A file that was written to so shortly ago may not be complete.
const FRESH_NANOS: i128 = 2_000_000_000;

/// What a search found.
#[derive(Default)]
pub struct Search {
    pub wanted: Vec<Wanted>,
    /// The states of the files that were looked at because they changed. They count once what was found there is swapped.
    pub seen: Vec<(PathBuf, FileState)>,
}

/// A tensor of the registry, and where it is to come from.
pub struct Wanted {
    pub entry: usize,
    pub to: Target,
}

pub enum Target {
    /// What was loaded.
    Original,
    /// A file's.
    Found(Box<Found>),
}

pub struct Found {
    pub path: PathBuf,
    /// The file's state before it was read.
    pub state: FileState,
    pub info: TensorInfo,
    /// The file that the tensor was in has itself been written to, so that its old bytes are gone from there.
    pub in_place: bool,
    /// Somebody asked for this tensor: it is taken even if it looks the same.
    pub asked: bool,
}

impl Registry {
    /// The tensors of files that are not as they were.
    pub fn changed(&mut self) -> Result<Search, ReloadError> {
        let mut search = Search::default();
        let mut refusals = Vec::new();
        for path in self.paths() {
            let state = state_of(&path)?;
            if self.is_as_seen(&path, &state) {
                continue;
            }
            self.note_overwritten(&path, state);
            let file = header(&path, state)?;
            let tensors: HashMap<&str, &TensorInfo> =
                file.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
            for (entry, known) in self.entries.iter().enumerate() {
                if known.current.path != path {
                    continue;
                }
                let name = known.original.info.name.as_str();
                let Some(info) = tensors.get(name) else {
                    let reason = "no longer in the file".into();
                    refusals.push(Refusal { tensor: name.into(), path: Some(path.clone()), reason });
                    continue;
                };
                let in_place = known.current.state.is_none_or(|before| before.same_file(&state));
                let found =
                    Found { path: path.clone(), state, info: (*info).clone(), in_place, asked: false };
                search.wanted.push(Wanted { entry, to: Target::Found(Box::new(found)) });
            }
            search.seen.push((path, state));
        }
        all_or_nothing(search, refusals)
    }

    /// What was asked for.
    pub fn wanted(&mut self, replacements: &[Replacement]) -> Result<Search, ReloadError> {
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut refusals = Vec::new();
        for Replacement { tensor, from } in replacements {
            let mut refuse = |path: Option<&Path>, reason: &str| {
                let (tensor, path) = (tensor.clone(), path.map(Path::to_owned));
                refusals.push(Refusal { tensor, path, reason: reason.into() });
            };
            let Some(entry) = self.index_of(tensor) else {
                refuse(None, "the model has no such tensor");
                continue;
            };
            let to = match from {
                Source::Original => Target::Original,
                Source::File(path) => {
                    let donor = self.donor(path)?;
                    let Some(info) = donor.tensor(tensor) else {
                        refuse(Some(path), "the file has no such tensor");
                        continue;
                    };
                    let path = donor.shards[info.extent.file.index()].path.clone();
                    let state = state_of(&path)?;
                    let info = info.clone();
                    let found = Found { path, state, info, in_place: false, asked: true };
                    Target::Found(Box::new(found))
                }
            };
            wanted.retain(|earlier| earlier.entry != entry);
            wanted.push(Wanted { entry, to });
        }
        all_or_nothing(Search { wanted, seen: Vec::new() }, refusals)
    }

    /// The header of a file that tensors are taken from; of all of its shards, if it is the first of several.
    fn donor(&mut self, path: &Path) -> Result<Arc<ModelFile>, ReloadError> {
        let state = state_of(path)?;
        if let Some((known, file)) = self.donors.get(path)
            && known.same_bytes(&state)
        {
            return Ok(Arc::clone(file));
        }
        let mut file = header(path, state)?;
        if file.u64("split.no") == Some(0) && file.u64("split.count").is_some_and(|count| count > 1) {
            file = gguf::read(path).map_err(|error| not_a_model(path, state, error))?;
        }
        let file = Arc::new(file);
        self.donors.insert(path.to_owned(), (state, Arc::clone(&file)));
        Ok(file)
    }

    /// The file has changed. If it is the same file, what was to be read of it, or is computed from a mapping of it, is gone.
    fn note_overwritten(&mut self, path: &Path, state: FileState) {
        for entry in &mut self.entries {
            if !entry.is_streamed() && !entry.is_mapped() {
                continue;
            }
            let overwritten =
                |before: &Option<FileState>| before.is_none_or(|before| before.same_file(&state));
            if entry.original.path == path && overwritten(&entry.original.state) {
                entry.intact = false;
            }
            if entry.current.path == path && overwritten(&entry.current.state) {
                self.overwritten = Some(path.to_owned());
            }
        }
    }
}

fn state_of(path: &Path) -> Result<FileState, ReloadError> {
    file_state(path).map_err(|source| ReloadError::Gone { path: path.to_owned(), source })
}

/// The header of one file, which was in this state before, and still is.
fn header(path: &Path, state: FileState) -> Result<ModelFile, ReloadError> {
    let file = gguf::read_one(path).map_err(|error| not_a_model(path, state, error))?;
    if state_of(path)?.same_bytes(&state) {
        Ok(file)
    } else {
        Err(ReloadError::Unstable { path: path.to_owned() })
    }
}

fn not_a_model(path: &Path, state: FileState, error: GgufError) -> ReloadError {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let fresh = i128::try_from(now).unwrap_or(i128::MAX) - state.modified < FRESH_NANOS;
    // A directory does not become a file by waiting.
    let fresh = fresh && !matches!(error, GgufError::Directory { .. } | GgufError::NotRegular { .. });
    ReloadError::File { path: path.to_owned(), source: Box::new(error), fresh }
}
