//! A hub's facts about a file, from the one place that has them: the headers of the response that
//! *redirects* to the storage. (The storage knows neither commit nor checksum.)

use super::arriving::NoAnswer;
use super::http::{Answer, redirection};
use super::{Hub, HubError, RemoteModel};
use ureq::http::Uri;
use ureq::http::header::{CONTENT_LENGTH, ETAG};

/// A file on a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Name of its content in the cache; the SHA-256 of large files.
    pub etag: String,
    /// The commit that it is of.
    pub commit: String,
    /// Length in bytes.
    pub size: u64,
}

impl RemoteFile {
    /// The SHA-256 that the content must have, if the hub says one.
    pub fn sha256(&self) -> Option<&str> {
        (self.etag.len() == 64).then_some(&self.etag)
    }
}

/// Renamed repositories answer with the new name; more than a few of them are a circle.
const MAX_RENAMES: usize = 5;

impl Hub {
    /// Asks for a file's size and name of its content.
    pub(super) fn metadata(&self, model: &RemoteModel, name: &str) -> Result<RemoteFile, HubError> {
        let mut url = self.file_url(model, name)?;
        for _ in 0..=MAX_RENAMES {
            let answer = self.http.patiently(|| self.http.head(&url)).map_err(|e| self.no_answer(e))?;
            if answer.text("x-linked-etag").is_none() {
                // What has moved to another host is there for whoever is redirected; it says
                // nothing more about itself.
                let next = redirection(&url, &answer).filter(|next| next.authority() == url.authority());
                if let Some(next) = next {
                    url = next;
                    continue;
                }
            }
            return self.read(model, name, &url, &answer);
        }
        Err(HubError::Malformed { url: url.to_string(), what: "end of its redirections" })
    }

    fn read(
        &self,
        model: &RemoteModel,
        name: &str,
        url: &Uri,
        answer: &Answer,
    ) -> Result<RemoteFile, HubError> {
        self.refusal(model, answer)?;
        let status = answer.status;
        match status.as_u16() {
            404 => return Err(HubError::NoFile { repo: model.id(), file: name.into(), choices: Vec::new() }),
            _ if status.is_success() || status.is_redirection() => {}
            _ => {
                let reason = format!("{name}: the hub answered {status}");
                return Err(HubError::Hub { repo: model.id(), reason });
            }
        }
        let malformed = |what| HubError::Malformed { url: url.to_string(), what };
        let etag = answer.text("x-linked-etag").or_else(|| answer.text(ETAG.as_str()));
        let etag = etag.map(|tag| tag.trim_start_matches("W/").trim_matches('"')).unwrap_or_default();
        // It becomes a file name.
        if etag.is_empty() || !etag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(malformed("ETag"));
        }
        let commit = answer.text("x-repo-commit").unwrap_or_default();
        if commit.is_empty() || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(malformed("X-Repo-Commit"));
        }
        let size = answer.text("x-linked-size").or_else(|| answer.text(CONTENT_LENGTH.as_str()));
        let size = size.and_then(|n| n.parse().ok()).ok_or_else(|| malformed("length"))?;
        Ok(RemoteFile { etag: etag.to_owned(), commit: commit.to_owned(), size })
    }

    /// Error of a response about the repository, if it has one.
    pub(super) fn refusal(&self, model: &RemoteModel, answer: &Answer) -> Result<(), HubError> {
        let status = answer.status;
        match status.as_u16() {
            404 if answer.text("x-error-code") == Some("RepoNotFound") => {
                Err(HubError::NoRepo { repo: model.id(), endpoint: self.endpoint.clone() })
            }
            401 | 403 => Err(HubError::Refused { repo: model.id() }),
            _ if answer.is_passing() => Err(self.unreachable(format!("it answered {status}"))),
            _ => Ok(()),
        }
    }

    /// An answer that did not come, or not whole, as an error.
    pub(super) fn no_answer(&self, reason: NoAnswer) -> HubError {
        match reason {
            NoAnswer::Interrupted => HubError::Interrupted,
            NoAnswer::Unreachable(reason) | NoAnswer::Broken(reason) => self.unreachable(reason),
        }
    }

    fn unreachable(&self, reason: String) -> HubError {
        HubError::Unreachable { endpoint: self.endpoint.clone(), reason }
    }
}
