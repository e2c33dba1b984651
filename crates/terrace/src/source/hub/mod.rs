//! Models from a Hugging Face hub, through the `hf-hub` crate and into the cache that all its clients share.
//!
//! `hf-hub` by itself starts an interrupted file from its beginning and believes whatever length arrives; for files
//! of many gigabytes that will not do. So the bytes are fetched here ([`download`]), by its range requests, and only
//! a complete, verified file is handed to it for the cache.

mod download;
pub mod error;
mod header;
mod metadata;
mod remote;

pub use error::HubError;
pub use header::RemoteHeader;
pub use remote::RemoteModel;

use crate::term::signals;
use download::Download;
use hf_hub::repository::RepoTypeModel;
use hf_hub::{HFClient, HFError, HFRepository};
use remote::{choices, shards_of};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The branch that is downloaded.
const REVISION: &str = "main";

/// A hub and the local cache of it.
pub struct Hub {
    client: HFClient,
    http: reqwest::Client,
    endpoint: String,
    token: Option<String>,
    cache: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Hub {
    /// As the environment says: `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_CACHE`, `HF_HOME`.
    ///
    /// # Errors
    /// An endpoint that is no URL.
    pub fn from_environment() -> Result<Self, HubError> {
        let endpoint = std::env::var("HF_ENDPOINT").unwrap_or_else(|_| "https://huggingface.co".into());
        Self::new(endpoint.trim_end_matches('/').to_owned(), hf_hub::resolve_cache_dir(), metadata::token())
    }

    fn new(endpoint: String, cache: PathBuf, token: Option<String>) -> Result<Self, HubError> {
        let setup = |reason: String| HubError::Setup { endpoint: endpoint.clone(), reason };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| setup(e.to_string()))?;
        let mut builder = HFClient::builder().endpoint(&endpoint).cache_dir(&cache);
        if let Some(token) = &token {
            builder = builder.token(token);
        }
        let client = builder.build().map_err(|e| setup(e.to_string()))?;
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(30))
            .build()
            .map_err(|e| setup(e.to_string()))?;
        Ok(Self { client, http, endpoint, token, cache, runtime })
    }

    /// The local path of a model (of a split one: of its first shard), downloading what is missing.
    ///
    /// # Errors
    /// What the hub or the cache's disk refuse; [`HubError::Interrupted`] after Ctrl-C.
    pub fn fetch(&self, model: &RemoteModel) -> Result<PathBuf, HubError> {
        self.runtime.block_on(async {
            tokio::select! {
                result = self.fetch_all(model) => result,
                () = ctrl_c() => Err(HubError::Interrupted),
            }
        })
    }

    async fn fetch_all(&self, model: &RemoteModel) -> Result<PathBuf, HubError> {
        let repository = self.client.model(&model.owner, &model.repo);
        let file = match &model.file {
            Some(file) => file.clone(),
            None => match self.only_file(model, &repository).await {
                Err(error) if error.is_unreachable() => self.cached_file(model).ok_or(error)?,
                other => other?,
            },
        };
        let mut first = None;
        for name in shards_of(&file) {
            let path = match self.fetch_file(model, &repository, &name).await {
                // A complete earlier download does not need the hub.
                Err(error) if error.is_unreachable() => {
                    let cached =
                        repository.download_file().filename(&name).local_files_only(true).send().await;
                    cached.map_err(|_| error)?
                }
                other => other?,
            };
            first.get_or_insert(path);
        }
        Ok(first.expect("a model has at least one file"))
    }

    /// The one model in a repository.
    async fn only_file(
        &self,
        model: &RemoteModel,
        repository: &HFRepository<RepoTypeModel>,
    ) -> Result<String, HubError> {
        let files = self.files(model, repository).await?;
        let mut found = choices(&files);
        match found.len() {
            0 => Err(HubError::NoModel { repo: model.id(), files: files.len() }),
            1 => Ok(found.remove(0)),
            _ => Err(HubError::Ambiguous { repo: model.id(), choices: found }),
        }
    }

    async fn files(
        &self,
        model: &RemoteModel,
        repository: &HFRepository<RepoTypeModel>,
    ) -> Result<Vec<String>, HubError> {
        let info = repository.info().send().await.map_err(|e| self.explain(model, e))?;
        Ok(info.siblings.unwrap_or_default().into_iter().map(|file| file.rfilename).collect())
    }

    async fn fetch_file(
        &self,
        model: &RemoteModel,
        repository: &HFRepository<RepoTypeModel>,
        name: &str,
    ) -> Result<PathBuf, HubError> {
        let remote = match self.metadata(model, name).await {
            Err(HubError::NoFile { repo, file, .. }) => {
                // A helpful answer is worth one more request; its failure changes nothing.
                let files = self.files(model, repository).await;
                let missing_repo = matches!(files, Err(HubError::NoRepo { .. }));
                if missing_repo {
                    return Err(HubError::NoRepo { repo, endpoint: self.endpoint.clone() });
                }
                return Err(HubError::NoFile { repo, file, choices: choices(&files.unwrap_or_default()) });
            }
            other => other?,
        };
        let folder = self.repository_folder(model);
        let blob = folder.join("blobs").join(&remote.etag);
        if !blob.is_file() {
            let url = format!("{}/{}/resolve/{REVISION}/{name}", self.endpoint, model.id());
            let download = Download { repository, name, remote: &remote, blob: &blob, url: &url };
            download.run().await?;
        }
        // The bytes are there: this only writes the reference and the link, as every client expects them.
        let path = repository
            .download_file()
            .filename(name)
            .revision(REVISION)
            .send()
            .await
            .map_err(|e| self.explain(model, e))?;
        let len = std::fs::metadata(&path).map_err(|e| HubError::cache(&path, e))?.len();
        if len != remote.size {
            return Err(HubError::WrongSize {
                file: path.display().to_string(),
                expected: remote.size,
                got: len,
            });
        }
        Ok(path)
    }

    fn repository_folder(&self, model: &RemoteModel) -> PathBuf {
        self.cache.join(format!("models--{}--{}", model.owner, model.repo))
    }

    /// A model (of a split one: its first shard) that is in the cache, without asking the hub.
    pub fn cached(&self, model: &RemoteModel) -> Option<PathBuf> {
        let name = model.file.clone().or_else(|| self.cached_file(model))?;
        let snapshot = self.cached_snapshot(model)?;
        let shards: Vec<PathBuf> = shards_of(&name).iter().map(|shard| snapshot.join(shard)).collect();
        shards.iter().all(|shard| shard.is_file()).then(|| shards[0].clone())
    }

    /// The one model of an earlier download, without asking the hub.
    fn cached_file(&self, model: &RemoteModel) -> Option<String> {
        let snapshot = self.cached_snapshot(model)?;
        let mut files = Vec::new();
        list(&snapshot, &snapshot, &mut files);
        match &choices(&files)[..] {
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    fn cached_snapshot(&self, model: &RemoteModel) -> Option<PathBuf> {
        let folder = self.repository_folder(model);
        let commit = std::fs::read_to_string(folder.join("refs").join(REVISION)).ok()?;
        Some(folder.join("snapshots").join(commit.trim()))
    }

    fn explain(&self, model: &RemoteModel, error: HFError) -> HubError {
        match error {
            HFError::RepoNotFound { .. } => {
                HubError::NoRepo { repo: model.id(), endpoint: self.endpoint.clone() }
            }
            HFError::AuthRequired { .. } | HFError::Forbidden { .. } => {
                HubError::Refused { repo: model.id() }
            }
            HFError::Request { source, .. } => HubError::unreachable(&self.endpoint, &source),
            HFError::Io(source) => HubError::cache(&self.cache, source),
            other => HubError::Hub { repo: model.id(), reason: other.to_string() },
        }
    }
}

/// Files below `dir`, named from `root`.
fn list(root: &Path, dir: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(root, &path, files);
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            files.push(name.to_owned());
        }
    }
}

/// Ends when Ctrl-C was pressed. The handler of [`signals`] is a plain flag, so this looks at it now and then.
async fn ctrl_c() {
    while !signals::interrupted() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod tests;
