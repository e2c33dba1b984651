//! The header of a remote model without the rest of it.

use super::{Hub, HubError, RemoteModel, shards_of};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use ureq::http::StatusCode;

/// Bytes that are asked for first; vocabularies of current models take 5 to 12 MB.
const FIRST: u64 = 16 << 20;
/// Of shards behind the first, which have no vocabulary.
const FIRST_OF_SHARD: u64 = 1 << 20;
/// A header that is longer is none.
const MAX_HEADER: u64 = 64 << 20;

/// A model's files with nothing but their headers: holes of the right length stand for the data.
/// Gone when dropped.
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

    /// Bytes of the first file's header; `None` if it is none.
    pub fn length(&self) -> Option<u64> {
        terrace_ggml::gguf::header_len(&self.first).ok()
    }
}

impl Hub {
    /// Fetches as much of a model's files as their headers take.
    ///
    /// # Errors
    /// What the hub refuses; [`HubError::Interrupted`] after Ctrl-C. Files that are no models are
    /// not told here.
    pub fn header(&self, model: &RemoteModel) -> Result<RemoteHeader, HubError> {
        self.headers(model, [FIRST, FIRST_OF_SHARD])
    }

    /// As [`Hub::header`], where headers of `like` bytes are usual: of another quantisation of the same model.
    ///
    /// # Errors
    /// As there.
    pub fn header_like(&self, model: &RemoteModel, like: u64) -> Result<RemoteHeader, HubError> {
        // Names of files and types differ by little.
        self.headers(model, [like + like / 64 + (16 << 10), FIRST_OF_SHARD])
    }

    /// `first`: bytes that are asked for first, of the first file and of each other one.
    pub(super) fn headers(&self, model: &RemoteModel, first: [u64; 2]) -> Result<RemoteHeader, HubError> {
        let file = self.named_file(model)?;
        let dir = tempfile::tempdir().map_err(|e| HubError::cache(&std::env::temp_dir(), e))?;
        let mut first_path = None;
        for (index, name) in shards_of(&file).iter().enumerate() {
            let base = Path::new(name).file_name().map_or_else(|| "model.gguf".into(), PathBuf::from);
            let path = dir.path().join(base);
            self.one_header(model, name, &path, first[index.min(1)])?;
            first_path.get_or_insert(path);
        }
        Ok(RemoteHeader { _dir: dir, first: first_path.expect("a model has at least one file") })
    }

    fn one_header(&self, model: &RemoteModel, name: &str, path: &Path, first: u64) -> Result<(), HubError> {
        let cache = |e| HubError::cache(path, e);
        let (url, size) = (self.file_url(model, name)?, self.metadata(model, name)?.size);
        let mut file = File::create(path).map_err(cache)?;
        file.set_len(size).map_err(cache)?;
        let (mut have, mut want) = (0, first.min(size));
        while have < want {
            file.seek(SeekFrom::Start(have)).map_err(cache)?;
            let mut answer = self
                .http
                .patiently(|| self.http.get(&url, Some(&(have..want))))
                .map_err(|e| self.no_answer(e))?;
            let broken = |reason| HubError::Broken { url: url.to_string(), at: have, size, reason };
            // A server that ignores ranges sends the file from its beginning.
            let skipped = match answer.status {
                StatusCode::PARTIAL_CONTENT => 0,
                StatusCode::OK => have,
                status => return Err(broken(format!("the server answered {status}"))),
            };
            let (mut ignored, mut got) = (0, have);
            while got < want {
                let Some(bytes) = answer.next().map_err(|e| self.no_answer(e))? else { break };
                let skip = (skipped - ignored).min(bytes.len() as u64);
                ignored += skip;
                let new = &bytes[skip as usize..];
                let new = &new[..new.len().min((want - got) as usize)];
                file.write_all(new).map_err(cache)?;
                got += new.len() as u64;
            }
            if got < want {
                return Err(broken("the connection closed early".into()));
            }
            have = want;
            // A walk into the hole fails, or ends behind what is there.
            let whole = terrace_ggml::gguf::header_len(path).is_ok_and(|len| len <= have);
            if whole || have >= size.min(MAX_HEADER) {
                break;
            }
            want = (have * 4).min(size);
        }
        Ok(())
    }
}
