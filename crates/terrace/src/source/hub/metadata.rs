//! What a hub says about a file, from the one place that says it: the headers of the answer that *redirects* to the
//! storage. (`hf-hub`'s own query follows the redirect, and the storage knows neither commit nor checksum.)

use super::{Hub, HubError, REVISION, RemoteModel};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_LENGTH, ETAG, HeaderMap, LOCATION};

/// A file on a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Name of its content in the cache; the SHA-256 of large files.
    pub etag: String,
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
    pub(super) async fn metadata(&self, model: &RemoteModel, name: &str) -> Result<RemoteFile, HubError> {
        let mut url =
            reqwest::Url::parse(&format!("{}/{}/resolve/{REVISION}/{name}", self.endpoint, model.id()))
                .map_err(|e| HubError::Setup { endpoint: self.endpoint.clone(), reason: e.to_string() })?;
        for _ in 0..=MAX_RENAMES {
            let mut request = self.http.head(url.clone());
            if let Some(token) = &self.token {
                request = request.bearer_auth(token);
            }
            let answer = request.send().await.map_err(|e| HubError::unreachable(&self.endpoint, &e))?;
            let (status, headers) = (answer.status(), answer.headers());
            if status.is_redirection() && !headers.contains_key("x-linked-etag") {
                let target = text(headers, LOCATION.as_str())
                    .filter(|to| to.starts_with('/') && !to.starts_with("//"));
                if let Some(next) = target.and_then(|to| url.join(to).ok()) {
                    url = next;
                    continue;
                }
            }
            return self.read(model, name, url.as_str(), status, headers);
        }
        Err(HubError::Malformed { url: url.into(), what: "end of its redirections" })
    }

    fn read(
        &self,
        model: &RemoteModel,
        name: &str,
        url: &str,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<RemoteFile, HubError> {
        match status.as_u16() {
            401 | 403 => return Err(HubError::Refused { repo: model.id() }),
            404 if text(headers, "x-error-code") == Some("RepoNotFound") => {
                return Err(HubError::NoRepo { repo: model.id(), endpoint: self.endpoint.clone() });
            }
            404 => return Err(HubError::NoFile { repo: model.id(), file: name.into(), choices: Vec::new() }),
            500..=599 => {
                let reason = format!("it answers {status}");
                return Err(HubError::Unreachable { endpoint: self.endpoint.clone(), reason });
            }
            _ if status.is_success() || status.is_redirection() => {}
            _ => {
                return Err(HubError::Hub {
                    repo: model.id(),
                    reason: format!("{name}: the hub answers {status}"),
                });
            }
        }
        let malformed = |what| HubError::Malformed { url: url.into(), what };
        let etag = text(headers, "x-linked-etag").or_else(|| text(headers, ETAG.as_str()));
        let etag = etag.map(|tag| tag.trim_start_matches("W/").trim_matches('"')).unwrap_or_default();
        // It becomes a file name.
        if etag.is_empty() || !etag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(malformed("ETag"));
        }
        let commit = text(headers, "x-repo-commit").unwrap_or_default();
        if commit.is_empty() || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(malformed("X-Repo-Commit"));
        }
        let size = text(headers, "x-linked-size").or_else(|| text(headers, CONTENT_LENGTH.as_str()));
        let size = size.and_then(|n| n.parse().ok()).ok_or_else(|| malformed("length"))?;
        Ok(RemoteFile { etag: etag.to_owned(), size })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The user's token, from where all clients of the hub look for it.
pub fn token() -> Option<String> {
    let trimmed = |text: String| Some(text.trim().to_owned()).filter(|t| !t.is_empty());
    if let Some(token) = std::env::var("HF_TOKEN").ok().and_then(trimmed) {
        return Some(token);
    }
    let path = std::env::var_os("HF_TOKEN_PATH").map_or_else(|| hf_hub::hf_home().join("token"), Into::into);
    std::fs::read_to_string(path).ok().and_then(trimmed)
}
