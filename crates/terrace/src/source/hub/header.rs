//! The header of a remote model without the rest of it.

use super::{Hub, HubError, REVISION, RemoteModel, ctrl_c, shards_of};
use futures_util::StreamExt;
use hf_hub::HFRepository;
use hf_hub::repository::RepoTypeModel;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Bytes that are asked for first; vocabularies of current models take 5 to 12 MB.
const FIRST: u64 = 16 << 20;
/// Of shards behind the first, which have no vocabulary.
const FIRST_OF_SHARD: u64 = 1 << 20;
/// A header that is longer is none.
const MOST: u64 = 64 << 20;

/// A model's files with nothing but their headers: holes of the right length stand for the data. Gone when dropped.
#[derive(Debug)]
pub struct RemoteHeader {
    _dir: TempDir,
    first: PathBuf,
}

impl RemoteHeader {
    /// The file to read; of a split model the first.
    pub fn path(&self) -> &Path {
        &self.first
    }
}

impl Hub {
    /// Fetches as much of a model's files as their headers take.
    ///
    /// # Errors
    /// What the hub refuses; [`HubError::Interrupted`] after Ctrl-C. Files that are no models are not told here.
    pub fn header(&self, model: &RemoteModel) -> Result<RemoteHeader, HubError> {
        self.runtime.block_on(async {
            tokio::select! {
                result = self.headers(model, [FIRST, FIRST_OF_SHARD]) => result,
                () = ctrl_c() => Err(HubError::Interrupted),
            }
        })
    }

    /// `first`: bytes that are asked for first, of the first file and of each other one.
    pub(super) async fn headers(
        &self,
        model: &RemoteModel,
        first: [u64; 2],
    ) -> Result<RemoteHeader, HubError> {
        let repository = self.client.model(&model.owner, &model.repo);
        let file = match &model.file {
            Some(file) => file.clone(),
            None => self.only_file(model, &repository).await?,
        };
        let dir = tempfile::tempdir().map_err(|e| HubError::cache(&std::env::temp_dir(), e))?;
        let mut first_path = None;
        for (index, name) in shards_of(&file).iter().enumerate() {
            let base = Path::new(name).file_name().map_or_else(|| "model.gguf".into(), PathBuf::from);
            let path = dir.path().join(base);
            self.one_header(model, &repository, name, &path, first[index.min(1)]).await?;
            first_path.get_or_insert(path);
        }
        Ok(RemoteHeader { _dir: dir, first: first_path.expect("a model has at least one file") })
    }

    async fn one_header(
        &self,
        model: &RemoteModel,
        repository: &HFRepository<RepoTypeModel>,
        name: &str,
        path: &Path,
        first: u64,
    ) -> Result<(), HubError> {
        let cache = |e| HubError::cache(path, e);
        let size = self.metadata(model, name).await?.size;
        let mut file = File::create(path).map_err(cache)?;
        file.set_len(size).map_err(cache)?;
        let (mut have, mut want) = (0, first.min(size));
        loop {
            file.seek(SeekFrom::Start(have)).map_err(cache)?;
            let request = repository.download_file_stream().filename(name).revision(REVISION);
            let (_, mut stream) =
                request.range(have..want).send().await.map_err(|e| self.explain(model, e))?;
            while have < want {
                let Some(chunk) = stream.next().await else { break };
                let chunk = chunk.map_err(|e| self.explain(model, e))?;
                let new = &chunk[..chunk.len().min((want - have) as usize)];
                file.write_all(new).map_err(cache)?;
                have += new.len() as u64;
            }
            if have < want {
                let url = format!("{}/{}/resolve/{REVISION}/{name}", self.endpoint, model.id());
                let reason = "the connection ended early".into();
                return Err(HubError::Broken { url, at: have, size, reason });
            }
            // A walk into the hole fails, or ends behind what is there.
            let whole = terrace_ggml::gguf::header_len(path).is_ok_and(|len| len <= have);
            if whole || have >= size.min(MOST) {
                return Ok(());
            }
            want = (have * 4).min(size);
        }
    }
}
