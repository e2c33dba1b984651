//! Models from a Hugging Face hub, into the cache that all clients of it share (`cache`).
//!
//! Plain HTTP (`http`): files of many gigabytes are resumed where they stopped, and count when
//! they are whole and have the content that the hub says (`download`).

#![allow(clippy::disallowed_methods, reason = "files of the cache, which have names of their own")]

mod arriving;
mod cache;
mod download;
pub mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod header;
mod http;
mod metadata;
mod remote;

pub use error::HubError;
pub use header::RemoteHeader;
pub use remote::{RemoteModel, choices};

use crate::term::signals;
use cache::{Cached, Folders};
use download::{Download, Watch};
use http::Http;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use remote::{first_shard_of, shards_of};
use serde::Deserialize;
use std::path::PathBuf;
use terrace_model::{ByteSize, parse_reason};
use terrace_platform::input_file::{self, MAX_SETTINGS};
use ureq::http::Uri;

/// The branch that is downloaded.
const REVISION: &str = "main";
/// Bytes that the list of a repository's files may take.
const LONGEST_LIST: usize = 64 << 20;
/// Characters that a file's name must not contain in a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A hub and the local cache of it.
pub struct Hub {
    http: Http,
    endpoint: String,
    cache: PathBuf,
}

impl Hub {
    /// Reads the environment: `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_CACHE`, `HF_HOME`.
    ///
    /// # Errors
    /// [`HubError::Setup`]: an endpoint that is no URL.
    pub fn from_environment() -> Result<Self, HubError> {
        let endpoint =
            crate::environment::var("HF_ENDPOINT").unwrap_or_else(|_| "https://huggingface.co".into());
        let folders = Folders::of(|name| crate::environment::var_os(name));
        let trimmed = |text: String| Some(text.trim().to_owned()).filter(|t| !t.is_empty());
        let token = crate::environment::var("HF_TOKEN").ok().and_then(trimmed);
        let token =
            token.or_else(|| input_file::read_text(&folders.token, MAX_SETTINGS).ok().and_then(trimmed));
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let http = Http::new(&endpoint, token.as_deref(), http::STALL, signals::interrupted);
        Self::new(endpoint, folders.cache, http)
    }

    fn new(endpoint: String, cache: PathBuf, http: Result<Http, String>) -> Result<Self, HubError> {
        match http {
            Ok(http) => Ok(Self { http, endpoint, cache }),
            Err(reason) => Err(HubError::Setup { endpoint, reason }),
        }
    }

    /// The local path of a model (of a split one: of its first shard), downloading what is missing.
    ///
    /// # Errors
    /// What the hub or the cache's disk refuse; [`HubError::Interrupted`] after Ctrl-C.
    pub fn fetch(&self, model: &RemoteModel) -> Result<PathBuf, HubError> {
        self.fetch_watched(model, &|_, _, _| true)
    }

    /// As [`Hub::fetch`]; `watch` is told how far it is.
    ///
    /// # Errors
    /// As there; [`HubError::Interrupted`] if `watch` does not want it any more.
    pub fn fetch_watched(&self, model: &RemoteModel, watch: &Watch<'_>) -> Result<PathBuf, HubError> {
        let file = match self.named_file(model) {
            Err(error) if error.is_unreachable() => self.cached_file(model).ok_or(error)?,
            other => other?,
        };
        let mut first = None;
        for name in shards_of(&file) {
            let path = match self.fetch_file(model, &name, watch) {
                // A complete earlier download does not need the hub.
                Err(error) if error.is_unreachable() => {
                    let cached = self.cached_model(model).snapshot().map(|snapshot| snapshot.join(&name));
                    cached.filter(|path| path.is_file()).ok_or(error)?
                }
                other => other?,
            };
            first.get_or_insert(path);
        }
        Ok(first.expect("a model has at least one file"))
    }

    /// The file of a model: the one that is named, the one with a part of its name, or the only one.
    fn named_file(&self, model: &RemoteModel) -> Result<String, HubError> {
        if let Some(file) = model.file.as_ref().filter(|_| part_of_name(model).is_none()) {
            return Ok(file.clone());
        }
        let files = self.sized_files(model)?;
        let names: Vec<String> = files.iter().map(|file| file.rfilename.clone()).collect();
        let mut found = choices(&names);
        if let Some(part) = part_of_name(model) {
            return only_with(model, part, found);
        }
        match found.len() {
            0 => Err(HubError::NoModel { repo: model.id(), files: files.len() }),
            1 => Ok(found.remove(0)),
            _ => {
                let sizes = found.iter().map(|name| size_of(name, &files)).collect();
                Err(HubError::Several { repo: model.id(), choices: found, sizes })
            }
        }
    }

    /// The models of a repository: what is on the hub, or, if that cannot be reached, in the cache.
    ///
    /// # Errors
    /// What the hub refuses.
    pub fn models(&self, model: &RemoteModel) -> Result<Vec<RemoteModel>, HubError> {
        let names = match self.files(model) {
            Err(error) if error.is_unreachable() => {
                Some(self.cached_names(model)).filter(|names| !names.is_empty()).ok_or(error)?
            }
            other => other?,
        };
        let named = |file| RemoteModel { file: Some(file), ..model.clone() };
        Ok(choices(&names).into_iter().map(named).collect())
    }

    /// The names of a repository's files.
    fn files(&self, model: &RemoteModel) -> Result<Vec<String>, HubError> {
        Ok(self.sized_files(model)?.into_iter().map(|file| file.rfilename).collect())
    }

    fn sized_files(&self, model: &RemoteModel) -> Result<Vec<RepositoryFile>, HubError> {
        let url = self.url(&format!("api/models/{}?blobs=true", model.id()))?;
        let answer = self.http.patiently(|| self.http.get(&url, None)).map_err(|e| self.no_answer(e))?;
        self.refusal(model, &answer)?;
        let hub = |reason| HubError::Hub { repo: model.id(), reason };
        if !answer.status.is_success() {
            return Err(hub(format!("the hub answered {}", answer.status)));
        }
        let body = answer.whole(LONGEST_LIST).map_err(|e| self.no_answer(e))?;
        let found: Repository = serde_json::from_slice(&body)
            .map_err(|e| hub(format!("the hub's list of files: {}", parse_reason(&e))))?;
        Ok(found.siblings)
    }

    fn fetch_file(&self, model: &RemoteModel, name: &str, watch: &Watch<'_>) -> Result<PathBuf, HubError> {
        let remote = match self.metadata(model, name) {
            Err(HubError::NoFile { repo, file, .. }) => {
                // A helpful answer is worth one more request; its failure changes nothing.
                let files = self.files(model);
                let missing_repo = matches!(files, Err(HubError::NoRepo { .. }));
                if missing_repo {
                    return Err(HubError::NoRepo { repo, endpoint: self.endpoint.clone() });
                }
                return Err(HubError::NoFile { repo, file, choices: choices(&files.unwrap_or_default()) });
            }
            other => other?,
        };
        let cached = self.cached_model(model);
        let blob = cached.blob(&remote.etag);
        let url = &self.file_url(model, name)?;
        let download = Download { http: &self.http, url, name, remote: &remote, blob: &blob, watch };
        if !download.is_whole() {
            download.run()?;
        }
        let path = cached.publish(name, &remote.etag, &remote.commit)?;
        let len = std::fs::metadata(&path).map_err(|e| HubError::cache(&path, e))?.len();
        if len != remote.size {
            let file = path.display().to_string();
            return Err(HubError::WrongSize { file, expected: remote.size, got: len });
        }
        Ok(path)
    }

    /// A model (of a split one: its first shard) that is in the cache, without asking the hub.
    pub fn cached(&self, model: &RemoteModel) -> Option<PathBuf> {
        let whole = model.file.clone().filter(|_| part_of_name(model).is_none());
        let name = whole.or_else(|| self.cached_file(model))?;
        let snapshot = self.cached_model(model).snapshot()?;
        let shards: Vec<PathBuf> = shards_of(&name).iter().map(|shard| snapshot.join(shard)).collect();
        shards.iter().all(|shard| shard.is_file()).then(|| shards[0].clone())
    }

    /// The model that a client of Ollama's names: `hf.co/owner/repo`, with a file or a part of its name
    /// behind a colon, such as `Q4_K_M`.
    ///
    /// # Errors
    /// It is no name, or the hub has no such model.
    pub fn named(&self, text: &str) -> Result<RemoteModel, HubError> {
        let model = client_name(text)?;
        let Some(part) = part_of_name(&model) else { return Ok(model) };
        let files = self.files(&model)?;
        Ok(RemoteModel { file: Some(only_with(&model, part, choices(&files))?), ..model })
    }

    /// As [`Hub::named`], among what is in the cache, with the model's files there.
    ///
    /// # Errors
    /// It is no name, or there are several such models.
    pub fn named_in_cache(&self, text: &str) -> Result<Option<(RemoteModel, Vec<PathBuf>)>, HubError> {
        let model = client_name(text)?;
        let found = choices(&self.cached_names(&model));
        let Some(snapshot) = self.cached_model(&model).snapshot().filter(|_| !found.is_empty()) else {
            return Ok(None);
        };
        let file = match (&model.file, part_of_name(&model)) {
            (Some(file), None) => file.clone(),
            (_, Some(part)) => only_with(&model, part, found)?,
            (None, None) => only_with(&model, "", found)?,
        };
        let files: Vec<PathBuf> = shards_of(&file).iter().map(|shard| snapshot.join(shard)).collect();
        Ok(files.iter().any(|file| file.is_file()).then_some((model, files)))
    }

    /// All models in the cache whose files are all there, each with its first file.
    pub fn downloaded(&self) -> Vec<(RemoteModel, PathBuf)> {
        let mut found = Vec::new();
        for repository in cache::repositories(&self.cache) {
            for file in choices(&self.cached_names(&repository)) {
                let model = RemoteModel { file: Some(file), ..repository.clone() };
                found.extend(self.cached(&model).map(|path| (model, path)));
            }
        }
        found
    }

    /// Deletes files of a model, and their contents.
    ///
    /// # Errors
    /// [`HubError::Cache`].
    pub fn remove(&self, model: &RemoteModel, files: &[PathBuf]) -> Result<(), HubError> {
        files.iter().try_for_each(|file| self.cached_model(model).remove(file))
    }

    /// Names of a repository's files that are in the cache.
    pub fn cached_names(&self, model: &RemoteModel) -> Vec<String> {
        self.cached_model(model).files()
    }

    /// The one model of an earlier download, or the one with a part of its name, without asking the hub.
    fn cached_file(&self, model: &RemoteModel) -> Option<String> {
        let found = choices(&self.cached_model(model).files());
        only_with(model, part_of_name(model).unwrap_or_default(), found).ok()
    }

    fn cached_model(&self, model: &RemoteModel) -> Cached {
        Cached::new(&self.cache, model)
    }

    fn file_url(&self, model: &RemoteModel, name: &str) -> Result<Uri, HubError> {
        let name = utf8_percent_encode(name, ESCAPED);
        self.url(&format!("{}/resolve/{REVISION}/{name}", model.id()))
    }

    fn url(&self, path: &str) -> Result<Uri, HubError> {
        let url = format!("{}/{path}", self.endpoint).parse::<Uri>();
        url.map_err(|e| HubError::Setup { endpoint: self.endpoint.clone(), reason: e.to_string() })
    }
}

/// A name as Ollama's clients write it.
fn client_name(text: &str) -> Result<RemoteModel, HubError> {
    let prefixes = ["hf:", "hf.co/", "huggingface.co/"];
    let name = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let model = RemoteModel::parse(name)?;
    // Ollama's word for a model without a choice.
    let file = model.file.filter(|file| file != "latest");
    Ok(RemoteModel { file, ..model })
}

/// The part of a name that stands for a model's file if it is not the file's name.
fn part_of_name(model: &RemoteModel) -> Option<&str> {
    model.file.as_deref().filter(|file| !file.ends_with(".gguf"))
}

/// The one model with this part in its name, whatever the case. `Q4_K` is not a part of `Q4_K_M` where
/// another name ends with it.
fn only_with(model: &RemoteModel, part: &str, choices: Vec<String>) -> Result<String, HubError> {
    let part = part.to_ascii_lowercase();
    let has = |name: &&String| name.to_ascii_lowercase().contains(&part);
    let mut found: Vec<String> = choices.iter().filter(has).cloned().collect();
    let ends = |name: &&String| {
        let first_shard = first_shard_of(&name.to_ascii_lowercase());
        let stem = first_shard.strip_suffix(".gguf").unwrap_or(&first_shard);
        let stem = stem.split("-00001-of-").next().unwrap_or(stem);
        // Not `iq4_xs` for `q4_xs`.
        stem.strip_suffix(part.as_str()).is_some_and(|rest| rest.ends_with(['-', '.', '_', '/']))
    };
    let exact: Vec<String> = found.iter().filter(ends).cloned().collect();
    if let [_] = exact[..] {
        found = exact;
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(HubError::NoFile { repo: model.id(), file: part, choices }),
        _ => Err(HubError::Ambiguous { repo: model.id(), choices: found }),
    }
}

/// The fields that are read of a hub's description of a repository.
#[derive(Deserialize)]
struct Repository {
    #[serde(default)]
    siblings: Vec<RepositoryFile>,
}

#[derive(Deserialize)]
struct RepositoryFile {
    rfilename: String,
    /// Bytes; some hubs do not say.
    size: Option<u64>,
}

/// The bytes of a model with all its shards, if the hub says them.
fn size_of(name: &str, files: &[RepositoryFile]) -> Option<ByteSize> {
    let of = |shard: &String| files.iter().find(|file| file.rfilename == *shard)?.size;
    shards_of(name).iter().map(of).sum::<Option<u64>>().map(ByteSize)
}

#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod tests;
