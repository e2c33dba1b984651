//! MODEL: a path, a model on the hub, or nothing, which means the bundled model.

mod found;
pub mod hit_curve;
pub mod hub;
pub mod trace_file;

use crate::error::CliError;
use crate::term::say;
use found::Found;
use hub::{Hub, RemoteHeader, RemoteModel};
use std::ffi::OsStr;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_model::ByteSize;
use terrace_plan::machine::auto_reserve;
use terrace_platform::input_file;

/// File name of the bundled model.
const BUNDLED: &str = "tiny-moe-Q4_K.gguf";

/// The local file of a model (for a split model, its first shard); downloads it if necessary.
///
/// # Errors
/// Errors of the hub, or [`CliError::NoBundledModel`].
pub fn resolve(model: Option<&OsStr>) -> Result<PathBuf, CliError> {
    match model {
        Some(name) => match find(name)? {
            Found::Hub(remote) => {
                let hub = Hub::from_environment()?;
                Ok(crate::term::signals::busy(|| hub.fetch(&RemoteModel::parse(&remote)?))?)
            }
            Found::File(path) => Ok(path),
        },
        None => {
            let path = bundled()?;
            say!("no MODEL given: using the bundled {}", path.display());
            Ok(path)
        }
    }
}

/// Checks that a model that is not downloaded is there, without reading more of it than its first bytes.
///
/// # Errors
/// Those of reading its header.
pub fn check(model: Option<&OsStr>) -> Result<(), CliError> {
    let path = match model {
        None => bundled()?,
        Some(name) => match find(name)? {
            Found::Hub(_) => return Ok(()),
            Found::File(path) => path,
        },
    };
    let begins = || {
        let mut magic = [0; 4];
        input_file::open(&path).ok()?.0.read_exact(&mut magic).ok()?;
        Some(magic)
    };
    if begins() != Some(*b"GGUF") {
        terrace_ggml::gguf::read(&path)?;
    }
    Ok(())
}

/// The local file of a model. `None` if it would have to be downloaded.
pub fn local(model: Option<&OsStr>) -> Option<PathBuf> {
    let path = match model {
        None => bundled().ok()?,
        Some(name) => match find(name).ok()? {
            Found::File(path) => path,
            Found::Hub(remote) => Hub::from_environment().ok()?.cached(&RemoteModel::parse(&remote).ok()?)?,
        },
    };
    path.is_file().then_some(path)
}

/// A model's header: a local file, or the downloaded beginning of a remote one.
pub enum Header {
    /// The model's file.
    Local(PathBuf),
    /// The beginning of the file.
    Remote(RemoteHeader),
}

impl Header {
    /// The file to read.
    pub fn path(&self) -> &Path {
        match self {
            Self::Local(path) => path,
            Self::Remote(header) => header.path(),
        }
    }
}

/// The header of a model. Of a remote model, nothing else is downloaded.
///
/// # Errors
/// Errors of the hub.
pub fn header(model: &OsStr) -> Result<Header, CliError> {
    match find(model)? {
        Found::File(path) => Ok(Header::Local(path)),
        Found::Hub(remote) => {
            let (hub, remote) = (Hub::from_environment()?, RemoteModel::parse(&remote)?);
            // An earlier download makes another request unnecessary.
            match hub.cached(&remote) {
                Some(path) => Ok(Header::Local(path)),
                None => Ok(Header::Remote(crate::term::signals::busy(|| hub.header(&remote))?)),
            }
        }
    }
}

/// One of several models that MODEL may stand for.
pub struct Candidate {
    /// MODEL for it alone.
    pub name: String,
    /// The file's name without what is before it and without `.gguf`.
    pub file: String,
    /// Its header.
    pub header: Header,
}

/// The models among which MODEL does not choose, a folder's or a repository's; none if it names one. Of remote models,
/// headers alone are downloaded; `progress` is told how many of how many are there, and may stop that.
///
/// # Errors
/// Errors of the hub.
pub fn candidates(
    model: &OsStr,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Vec<Candidate>, CliError> {
    let folder = Path::new(model);
    if folder.is_dir() {
        let models = found::models_in(folder);
        let local = |path: PathBuf| Candidate {
            name: path.display().to_string(),
            file: bare(&path.to_string_lossy()),
            header: Header::Local(path),
        };
        return Ok(if models.len() > 1 { models.into_iter().map(local).collect() } else { Vec::new() });
    }
    let Found::Hub(remote) = find(model)? else { return Ok(Vec::new()) };
    let (hub, remote) = (Hub::from_environment()?, RemoteModel::parse(&remote)?);
    if remote.file.is_some() {
        return Ok(Vec::new());
    }
    crate::term::signals::busy(|| {
        let models = hub.models(&remote)?;
        let (mut found, mut like) = (Vec::new(), None);
        for model in models.iter().filter(|_| models.len() > 1) {
            if progress(found.len(), models.len()).is_break() {
                return Err(CliError::Interrupted);
            }
            let header = match (hub.cached(model), like) {
                (Some(path), _) => Header::Local(path),
                (None, Some(like)) => Header::Remote(hub.header_like(model, like)?),
                (None, None) => Header::Remote(hub.header(model)?),
            };
            if let Header::Remote(header) = &header {
                like = like.max(header.length());
            }
            let file = model.file.clone().unwrap_or_default();
            found.push(Candidate { name: format!("hf:{}:{file}", model.id()), file: bare(&file), header });
        }
        Ok(found)
    })
}

/// The name of a file without folders, the number of a shard and `.gguf`.
fn bare(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = base.strip_suffix(".gguf").unwrap_or(base);
    stem.split("-00001-of-").next().unwrap_or(stem).to_owned()
}

/// Finds the file that MODEL names.
///
/// # Errors
/// What to write instead.
fn find(model: &OsStr) -> Result<Found, CliError> {
    let named = crate::environment::var_os("OLLAMA_MODELS").filter(|folder| !folder.is_empty());
    let home = |name| crate::environment::var_os(name).filter(|home| !home.is_empty());
    let home = home("HOME").or_else(|| home("USERPROFILE"));
    let ollama = named.map(PathBuf::from).or_else(|| Some(Path::new(&home?).join(".ollama/models")));
    found::find(model, ollama.as_deref())
}

/// The RAM that weights can have on this machine.
pub fn room() -> ByteSize {
    let available = terrace_host::available_memory();
    ByteSize(available.bytes().saturating_sub(auto_reserve(available).bytes()))
}

/// Finds the bundled model: `$TERRACE_BUNDLED_MODEL`, beside the program, in the installation's
/// `share` (the program is in `bin` or in `lib/terrace`), or in the source tree.
fn bundled() -> Result<PathBuf, CliError> {
    if let Some(path) = crate::environment::var_os("TERRACE_BUNDLED_MODEL").filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return if path.is_file() { Ok(path) } else { Err(CliError::NoBundledModel(path)) };
    }
    let program = std::env::current_exe().ok();
    // Package managers make links to programs, which not every system follows here.
    let linked = program.as_ref().and_then(|program| program.canonicalize().ok());
    let share = Path::new("share").join("terrace");
    let share = share.as_path();
    for program in program.iter().chain(&linked) {
        for (up, way) in [(1, Path::new("")), (2, share), (3, share)] {
            let Some(folder) = program.ancestors().nth(up) else { break };
            let path = folder.join(way).join(BUNDLED);
            if path.is_file() {
                return Ok(path);
            }
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(BUNDLED);
    if source.is_file() {
        // Without `..`, the path reads better in messages.
        return Ok(source.canonicalize().unwrap_or(source));
    }
    Err(CliError::NoBundledModel(source))
}
