//! MODEL: a path, something on the hub, or nothing, which means the bundled model.

pub mod hit_curve;
pub mod hub;
pub mod trace_file;

use crate::error::CliError;
use hub::{Hub, RemoteHeader, RemoteModel};
use std::path::{Path, PathBuf};

/// File name of the bundled model.
const BUNDLED: &str = "tiny-moe-Q4_K.gguf";

/// The local file (of a split model: the first) of what was asked for; downloads it if it must.
///
/// # Errors
/// The hub's, or [`CliError::NoBundledModel`].
pub fn resolve(model: Option<&str>) -> Result<PathBuf, CliError> {
    match model {
        Some(name) => match name.strip_prefix("hf:") {
            Some(remote) => {
                let hub = Hub::from_environment()?;
                Ok(crate::term::signals::busy(|| hub.fetch(&RemoteModel::parse(remote)?))?)
            }
            None => Ok(PathBuf::from(name)),
        },
        None => {
            let path = bundled()?;
            eprintln!("no MODEL given: running the bundled {}", path.display());
            Ok(path)
        }
    }
}

/// The file of what was asked for, if it is here already.
pub fn local(model: Option<&str>) -> Option<PathBuf> {
    let path = match model {
        None => bundled().ok()?,
        Some(name) => match name.strip_prefix("hf:") {
            None => PathBuf::from(name),
            Some(remote) => Hub::from_environment().ok()?.cached(&RemoteModel::parse(remote).ok()?)?,
        },
    };
    path.is_file().then_some(path)
}

/// A model's header: a local file, or what was fetched of a remote one.
pub enum Header {
    /// The file.
    Local(PathBuf),
    /// Its beginning.
    Remote(RemoteHeader),
}

impl Header {
    /// What to read.
    pub fn path(&self) -> &Path {
        match self {
            Self::Local(path) => path,
            Self::Remote(header) => header.path(),
        }
    }
}

/// The header of what was asked for; of a remote model nothing else is downloaded.
///
/// # Errors
/// The hub's.
pub fn header(model: &str) -> Result<Header, CliError> {
    match model.strip_prefix("hf:") {
        None => Ok(Header::Local(PathBuf::from(model))),
        Some(remote) => {
            let (hub, remote) = (Hub::from_environment()?, RemoteModel::parse(remote)?);
            // What was downloaded before need not be asked for again.
            match hub.cached(&remote) {
                Some(path) => Ok(Header::Local(path)),
                None => Ok(Header::Remote(crate::term::signals::busy(|| hub.header(&remote))?)),
            }
        }
    }
}

/// `$TERRACE_BUNDLED_MODEL`, beside the program, in its installation's share, or in the source tree it was built of.
fn bundled() -> Result<PathBuf, CliError> {
    if let Some(path) = std::env::var_os("TERRACE_BUNDLED_MODEL").filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return if path.is_file() { Ok(path) } else { Err(CliError::NoBundledModel(path)) };
    }
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(BUNDLED);
    let candidates = beside
        .iter()
        .flat_map(|dir| [dir.join(BUNDLED), dir.join("../share/terrace").join(BUNDLED)])
        .chain([source.clone()]);
    for path in candidates {
        if path.is_file() {
            // Without the `..` steps it reads better in messages.
            return Ok(path.canonicalize().unwrap_or(path));
        }
    }
    Err(CliError::NoBundledModel(source))
}
