//! Finds what to replace: tensors that changed on disk, or tensors that the caller named.

use super::error::{Refusal, ReloadError, all_or_nothing};
use super::registry::Registry;
use super::replacement::{Replacement, Source, Take};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_ggml::gguf::{self, GgufError};
use terrace_model::identity::FileState;
use terrace_model::{ModelFile, TensorInfo};
use terrace_store::identity::{file_state, now};

/// A file that was written to less than this many nanoseconds ago may be incomplete.
const FRESH_NANOS: i128 = 2_000_000_000;

/// The result of a search.
#[derive(Default)]
pub struct Search {
    pub wanted: Vec<TensorReload>,
    /// States of the changed files that were parsed. They are recorded once what was found there
    /// has been swapped.
    pub seen: Vec<(PathBuf, FileState)>,
    /// Consequence of refused tensors for the others.
    pub take: Take,
    /// Tensors that keep their bytes, because they cannot be replaced.
    pub refused: Vec<Refusal>,
}

/// A tensor of the registry, and where its bytes should come from.
pub struct TensorReload {
    pub entry: usize,
    pub to: Target,
}

pub enum Target {
    /// The loaded bytes.
    Original,
    /// A tensor in a file.
    Found(Box<Found>),
}

pub struct Found {
    pub path: PathBuf,
    /// The file's state before it was read.
    pub state: FileState,
    pub info: TensorInfo,
    /// True if the tensor's current file itself was written to, so that its old bytes there are
    /// gone.
    pub in_place: bool,
    /// True if the caller named this tensor: it is then taken even if it looks the same.
    pub asked: bool,
    /// Its SHA-256, in runs that verify what they read.
    pub sha256: Option<String>,
}

/// Consequence of a file that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Nothing is replaced.
    Fails,
    /// Its tensors are refused.
    Refuses,
}

impl Registry {
    /// Finds the tensors of files that have changed. A file that cannot be read is an error, or a reason to
    /// refuse each of its tensors.
    pub fn changed(&mut self, take: Take, unreadable: Unreadable) -> Result<Search, ReloadError> {
        let mut search = Search { take, ..Search::default() };
        let mut refusals = Vec::new();
        for path in self.paths() {
            let (state, file) = match self.changed_file(&path) {
                Ok(None) => continue,
                Ok(Some(read)) => read,
                Err(error) if unreadable == Unreadable::Refuses => {
                    self.refuse_file(&path, &error, &mut search, &mut refusals);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let tensors: HashMap<&str, &TensorInfo> =
                file.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
            for (entry, known) in self.entries.iter().enumerate() {
                if known.current.path != path {
                    continue;
                }
                let name = known.original.info.name.as_str();
                let in_place = known.current.state.is_none_or(|before| before.same_file(&state));
                let Some(info) = tensors.get(name) else {
                    let reason = "no longer in the file".into();
                    let refusal = Refusal { tensor: name.into(), path: Some(path.clone()), reason };
                    match take == Take::Acceptable && known.keeps_bytes(in_place) {
                        true => search.refused.push(refusal),
                        false => refusals.push(refusal),
                    }
                    continue;
                };
                let (path, info) = (path.clone(), (*info).clone());
                let found = Found { path, state, info, in_place, asked: false, sha256: None };
                search.wanted.push(TensorReload { entry, to: Target::Found(Box::new(found)) });
            }
            search.seen.push((path, state));
        }
        all_or_nothing(search, refusals)
    }

    /// Reads the header of a file, with the file's state. `None` if it has not changed.
    fn changed_file(&mut self, path: &Path) -> Result<Option<(FileState, ModelFile)>, ReloadError> {
        let state = state_of(path)?;
        if self.is_as_seen(path, &state) {
            return Ok(None);
        }
        self.note_overwritten(path, state);
        settled(path, state)?;
        Ok(Some((state, header(path, state)?)))
    }

    /// Refuses all tensors of a file that cannot be read. One that is complete, but no model, is read again
    /// only after it has changed.
    fn refuse_file(
        &self,
        path: &Path,
        error: &ReloadError,
        search: &mut Search,
        refusals: &mut Vec<Refusal>,
    ) {
        let state = state_of(path).ok();
        for known in self.entries.iter().filter(|known| known.current.path == path) {
            let in_place =
                state.is_some_and(|state| known.current.state.is_none_or(|before| before.same_file(&state)));
            let tensor = known.original.info.name.clone();
            let refusal = Refusal { tensor, path: Some(path.to_owned()), reason: error.reason() };
            match known.keeps_bytes(in_place) {
                true => search.refused.push(refusal),
                false => refusals.push(refusal),
            }
        }
        if let (ReloadError::File { fresh: false, .. }, Some(state)) = (error, state) {
            search.seen.push((path.to_owned(), state));
        }
    }

    /// Finds the tensors that the caller named.
    pub fn wanted(&mut self, replacements: &[Replacement]) -> Result<Search, ReloadError> {
        let mut wanted: Vec<TensorReload> = Vec::new();
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
                    let state = settled(&path, state_of(&path)?)?;
                    let info = info.clone();
                    let found = Found { path, state, info, in_place: false, asked: true, sha256: None };
                    Target::Found(Box::new(found))
                }
            };
            wanted.retain(|earlier| earlier.entry != entry);
            wanted.push(TensorReload { entry, to });
        }
        all_or_nothing(Search { wanted, ..Search::default() }, refusals)
    }

    /// Reads the header of a donor, with all of its shards if it is the first of several.
    fn donor(&mut self, path: &Path) -> Result<Arc<ModelFile>, ReloadError> {
        let state = state_of(path)?;
        if let Some((known, file)) = self.donors.get(path)
            && known.same_bytes(&state)
        {
            return Ok(Arc::clone(file));
        }
        let state = settled(path, state)?;
        let mut file = header(path, state)?;
        if file.u64("split.no") == Some(0) && file.u64("split.count").is_some_and(|count| count > 1) {
            file = gguf::read(path).map_err(|error| not_a_model(path, state, error))?;
        }
        let file = Arc::new(file);
        self.donors.insert(path.to_owned(), (state, Arc::clone(&file)));
        Ok(file)
    }

    /// Notes that a file has changed. If it is still the same file, bytes that stream from it, or
    /// are computed from a mapping of it, are gone.
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
                self.overwritten = Some((path.to_owned(), state));
            }
        }
    }
}

fn state_of(path: &Path) -> Result<FileState, ReloadError> {
    file_state(path).map_err(|source| ReloadError::Gone { path: path.to_owned(), source })
}

/// Checks that a write from now on shows in the file's state. If not, the file changed a moment ago,
/// and is looked at again after another moment.
fn settled(path: &Path, state: FileState) -> Result<FileState, ReloadError> {
    match state.is_settled(now()) {
        true => Ok(state),
        false => Err(ReloadError::Unstable { path: path.to_owned() }),
    }
}

/// Reads the header of one file, and checks that the file is still in this state afterwards.
fn header(path: &Path, state: FileState) -> Result<ModelFile, ReloadError> {
    let file = gguf::read_one(path).map_err(|error| not_a_model(path, state, error))?;
    if state_of(path)?.same_bytes(&state) {
        Ok(file)
    } else {
        Err(ReloadError::Unstable { path: path.to_owned() })
    }
}

fn not_a_model(path: &Path, state: FileState, error: GgufError) -> ReloadError {
    let fresh = now() - state.modified < FRESH_NANOS;
    // Waiting does not turn a directory into a file.
    let fresh = fresh && !matches!(error, GgufError::Directory { .. } | GgufError::NotRegular { .. });
    ReloadError::File { path: path.to_owned(), source: Box::new(error), fresh }
}
