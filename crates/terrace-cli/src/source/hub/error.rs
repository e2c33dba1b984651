//! Errors between a hub and the cache.

use super::arriving::Interrupted;
use std::path::{Path, PathBuf};
use terrace_model::{ByteSize, excerpt, listed};

/// Most names of files that are listed.
pub const MAX_NAMES: usize = 20;
/// Most characters of a name that are shown.
const MAX_NAME: usize = 200;

/// Why a model could not be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Ctrl-C; what was downloaded stays.
    #[error("download interrupted")]
    Interrupted,
    /// Not `owner/repo[:file]`.
    #[error("`hf:{}` is not a model on the hub: {reason}", excerpt(.text, MAX_NAME))]
    Name {
        /// The text after `hf:`.
        text: String,
        /// The fault.
        reason: &'static str,
    },
    /// The client could not be made.
    #[error("the hub at {endpoint} cannot be used: {reason}")]
    Setup {
        /// `HF_ENDPOINT`.
        endpoint: String,
        reason: String,
    },
    /// No answer.
    #[error("the hub at {endpoint} cannot be reached: {reason}")]
    Unreachable {
        /// `HF_ENDPOINT`.
        endpoint: String,
        reason: String,
    },
    /// No such repository.
    #[error("hf:{repo}: no such repository on {endpoint}")]
    NoRepo {
        /// `owner/repo`.
        repo: String,
        /// `HF_ENDPOINT`.
        endpoint: String,
    },
    /// Private, gated, or not there: the hub does not tell.
    #[error("hf:{repo}: the hub refuses access, or there is no such repository")]
    Refused {
        /// `owner/repo`.
        repo: String,
    },
    /// No such file.
    #[error("hf:{repo}: there is no file {}", excerpt(.file, MAX_NAME))]
    NoFile {
        /// `owner/repo`.
        repo: String,
        file: String,
        /// Models that are there.
        choices: Vec<String>,
    },
    /// Nothing to run.
    #[error("hf:{repo}: none of its {files} files is a .gguf model")]
    NoModel {
        /// `owner/repo`.
        repo: String,
        /// Its number of files.
        files: usize,
    },
    /// More than one to run.
    #[error("hf:{repo}: the repository has {} models: {}", .choices.len(), listed(.choices, MAX_NAMES))]
    Ambiguous {
        /// `owner/repo`.
        repo: String,
        /// The models.
        choices: Vec<String>,
    },
    /// More than one to run, with their sizes if the hub says them.
    #[error("hf:{repo}: the repository has {} models, of which one has to be named", .choices.len())]
    Several {
        /// `owner/repo`.
        repo: String,
        /// The models.
        choices: Vec<String>,
        /// Bytes of each.
        sizes: Vec<Option<ByteSize>>,
    },
    /// Any other answer of the hub.
    #[error("hf:{repo}: {reason}")]
    Hub {
        /// `owner/repo`.
        repo: String,
        /// The hub's words.
        reason: String,
    },
    /// The hub's answer lacks what a download needs.
    #[error("{url}: the hub's response has no usable {what}")]
    Malformed {
        /// The requested address.
        url: String,
        /// The missing part.
        what: &'static str,
    },
    /// The connection broke, again and again.
    #[error("{url}: the download stopped at byte {at} of {size}: {reason}")]
    Broken {
        url: String,
        /// Bytes in the cache.
        at: u64,
        /// Bytes of the whole file.
        size: u64,
        /// The last reason.
        reason: String,
    },
    /// A file that is not as long as the hub said.
    #[error("{file}: the file has {got} bytes instead of {expected}")]
    WrongSize {
        file: String,
        /// Size that the hub announced.
        expected: u64,
        /// Size that arrived.
        got: u64,
    },
    /// A file whose content is not what the hub says.
    #[error("{url}: the SHA-256 of the download is {got}, not {expected}")]
    WrongContent {
        url: String,
        /// Hash that the hub announced.
        expected: String,
        /// Hash of what arrived.
        got: String,
    },
    /// The disk is too full.
    #[error("{url}: {needed} remain to be downloaded, but {} has only {free} free", .folder.display())]
    NoSpace {
        url: String,
        /// Still to download.
        needed: ByteSize,
        free: ByteSize,
        /// The cache.
        folder: PathBuf,
    },
    /// The file at this path is not the one that this process downloaded into.
    #[error("download cache: {}: another program replaced or removed the file meanwhile", .0.display())]
    Replaced(PathBuf),
    /// The cache cannot be written or read.
    #[error("download cache: {}: {source}", .path.display())]
    Cache {
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl HubError {
    /// A [`HubError::Cache`].
    pub fn cache(path: &Path, source: std::io::Error) -> Self {
        Self::Cache { path: path.to_owned(), source }
    }

    /// Returns true if the cache may answer instead.
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Lines before the hint: the models of a repository with their sizes, and whether this much
    /// memory holds them.
    pub fn details(&self, memory: ByteSize) -> Vec<String> {
        let Self::Several { choices, sizes, .. } = self else { return Vec::new() };
        let width = choices.iter().take(MAX_NAMES).map(|name| name.chars().count().min(MAX_NAME)).max();
        let line = |(name, size): (&String, &Option<ByteSize>)| {
            let fits = match size {
                Some(size) if *size <= memory => "fits in memory",
                Some(_) => "streams from disk",
                None => "",
            };
            let (name, size) =
                (excerpt(name, MAX_NAME), size.map(|size| size.to_string()).unwrap_or_default());
            format!("  {name:<0$}  {size:>9}  {fits}", width.unwrap_or(0)).trim_end().to_owned()
        };
        let mut lines: Vec<String> = choices.iter().zip(sizes).take(MAX_NAMES).map(line).collect();
        lines
            .extend((choices.len() > MAX_NAMES).then(|| format!("  and {} more", choices.len() - MAX_NAMES)));
        lines
    }

    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Name { .. } => Some("write hf:owner/repo, or hf:owner/repo:file.gguf".into()),
            Self::Setup { .. } => Some("check HF_ENDPOINT and HF_TOKEN if they are set".into()),
            Self::Unreachable { .. } => Some(
                "check the network, HF_ENDPOINT if it is set, and that the system's certificates (package ca-certificates) are installed"
                    .into(),
            ),
            Self::NoRepo { .. } => {
                Some("check the name; private and gated repositories need a token in HF_TOKEN".into())
            }
            Self::Refused { .. } => {
                Some("check the name, and set HF_TOKEN to a token with read access".into())
            }
            Self::NoFile { choices, .. } if !choices.is_empty() => {
                Some(format!("the repository has {}", listed(choices, MAX_NAMES)))
            }
            Self::NoModel { .. } => {
                Some("look for a repository with GGUF files (often named ...-GGUF)".into())
            }
            Self::Ambiguous { repo, choices } => {
                Some(format!("name one of them, e.g. hf:{repo}:{}", excerpt(choices.first()?, MAX_NAME)))
            }
            Self::Several { repo, choices, .. } => {
                let name = choices.first().map_or("", |first| part_for(first));
                Some(format!("name one by its file or its type, e.g. hf:{repo}:{}", excerpt(name, MAX_NAME)))
            }
            Self::Broken { .. } | Self::Replaced(_) => Some("run the same command again to resume the download".into()),
            Self::WrongSize { .. } | Self::WrongContent { .. } => {
                Some("try again later; the file on the hub may be damaged, or may be changing".into())
            }
            Self::NoSpace { .. } | Self::Cache { .. } => {
                Some("free some space, or set HF_HUB_CACHE to another folder".into())
            }
            _ => None,
        }
    }
}

/// The short name of a file: the type at the end of its name, or all of it.
fn part_for(file: &str) -> &str {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = base.strip_suffix(".gguf").unwrap_or(base).split("-00001-of-").next().unwrap_or(base);
    let ty = stem.rsplit(['-', '.']).next().unwrap_or(stem);
    match ty.to_ascii_uppercase().starts_with(['Q', 'I', 'F', 'B', 'T', 'M']) && ty != stem {
        true => ty,
        false => file,
    }
}

impl From<Interrupted> for HubError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}
