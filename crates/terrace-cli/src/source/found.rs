//! Other names of models: those of hubs, Ollama and LM Studio, and folders.

use crate::error::CliError;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use terrace_model::listed;
use terrace_platform::input_file::{self, MAX_SETTINGS};

/// Levels of folders that are searched for models: LM Studio's have publishers and repositories.
const DEPTH: usize = 3;
/// Most names that are listed.
const MAX_NAMES: usize = 10;
/// Beginnings of a hub's addresses.
const HUBS: [&str; 4] = ["https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/"];

/// Advice for models in safetensors.
const CONVERT: &str =
    "convert it with llama.cpp's convert_hf_to_gguf.py, or look for a repository named ...-GGUF";

/// A model that was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    File(PathBuf),
    /// The text after `hf:`.
    Hub(String),
}

/// Finds the model of a name.
///
/// # Errors
/// What to write instead.
pub fn find(name: &OsStr, ollama: Option<&Path>) -> Result<Found, CliError> {
    let path = Path::new(name);
    if path.is_dir() {
        return in_folder(path);
    }
    if path.is_file() && path.extension().is_some_and(|extension| extension == "safetensors") {
        return Err(CliError::Usage {
            message: format!("{} is a model in safetensors, not in GGUF", path.display()),
            hint: CONVERT.into(),
        });
    }
    let Some(text) = name.to_str().filter(|_| !path.exists()) else { return Ok(Found::File(path.into())) };
    if let Some(remote) = text.strip_prefix("hf:") {
        return Ok(Found::Hub(remote.into()));
    }
    if let Some(rest) = HUBS.iter().find_map(|hub| text.strip_prefix(hub)) {
        return Ok(Found::Hub(of_address(rest)));
    }
    if let Some(file) = ollama.and_then(|folder| of_ollama(folder, text)) {
        return Ok(Found::File(file));
    }
    match hint(text) {
        Some(hint) => Err(CliError::Usage { message: format!("there is no file `{text}`"), hint }),
        // The error names the path, and why it cannot be read.
        None => Ok(Found::File(path.into())),
    }
}

/// A repository and a file by their address: `owner/repo`, `owner/repo/blob/main/FILE?download=true`.
fn of_address(rest: &str) -> String {
    let rest = rest.split(['?', '#']).next().unwrap_or(rest).trim_end_matches('/');
    let parts: Vec<&str> = rest.splitn(5, '/').collect();
    match parts[..] {
        [owner, repo, "blob" | "resolve", _, file] => format!("{owner}/{repo}:{file}"),
        [owner, repo, "tree", ..] => format!("{owner}/{repo}"),
        _ => rest.to_owned(),
    }
}

/// The weights of a model that Ollama has downloaded: `name[:tag]`.
fn of_ollama(folder: &Path, name: &str) -> Option<PathBuf> {
    let (model, tag) = name.split_once(':').unwrap_or((name, "latest"));
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\\');
    if !plain(tag) || tag.contains('/') || !model.split('/').all(plain) {
        return None;
    }
    let library = if model.contains('/') { model.to_owned() } else { format!("library/{model}") };
    let manifest = folder.join("manifests/registry.ollama.ai").join(library).join(tag);
    let text = input_file::read_regular_text(&manifest, MAX_SETTINGS).ok()?;
    let manifest: Value = serde_json::from_str(&text).ok()?;
    let is_model = |layer: &&Value| layer["mediaType"] == "application/vnd.ollama.image.model";
    let layer = manifest["layers"].as_array()?.iter().find(is_model)?;
    let digest = layer["digest"].as_str()?.replace(':', "-");
    let blob = folder.join("blobs").join(digest);
    blob.is_file().then_some(blob)
}

/// The models of a folder, split ones by their first file.
pub fn models_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(folder, DEPTH, &mut files);
    models_among(folder, &files).iter().map(|model| folder.join(model)).collect()
}

/// The models among the files of a folder, by their names in it.
fn models_among(folder: &Path, files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    let names: Vec<String> =
        names.filter_map(|file| Some(file.strip_prefix(folder).ok()?.to_str()?.to_owned())).collect();
    super::hub::choices(&names)
}

/// The one model of a folder.
fn in_folder(folder: &Path) -> Result<Found, CliError> {
    let usage = |message: String, hint: String| Err(CliError::Usage { message, hint });
    let shown = folder.display();
    let mut files = Vec::new();
    collect(folder, DEPTH, &mut files);
    files.sort();
    let ends = |file: &&PathBuf, end: &str| file.extension().is_some_and(|extension| extension == end);
    let models = models_among(folder, &files);
    match &models[..] {
        [one] => Ok(Found::File(folder.join(one))),
        [first, ..] => usage(
            format!("{shown} has {} models: {}", models.len(), listed(&models, MAX_NAMES)),
            format!(
                "name one, e.g. {}; `terrace serve --models-dir` serves all",
                folder.join(first).display()
            ),
        ),
        [] if let Some(root) = ollama_root(folder) => in_ollama(folder, root),
        [] if files.iter().any(|file| ends(&file, "safetensors")) => {
            usage(format!("{shown} has a model in safetensors, and no .gguf file"), CONVERT.into())
        }
        [] => usage(format!("{shown} has no .gguf file"), "give a .gguf file, or hf:owner/repo".into()),
    }
}

/// Ollama's folder of models, of which this is the folder or that of its blobs.
fn ollama_root(folder: &Path) -> Option<&Path> {
    let is_root = |folder: &&Path| folder.join("manifests").is_dir() && folder.join("blobs").is_dir();
    Some(folder)
        .filter(is_root)
        .or_else(|| folder.parent().filter(|_| folder.ends_with("blobs")).filter(is_root))
}

/// The one model of Ollama's folder.
fn in_ollama(folder: &Path, root: &Path) -> Result<Found, CliError> {
    let library = root.join("manifests/registry.ollama.ai/library");
    let mut files = Vec::new();
    collect(&library, 2, &mut files);
    files.sort();
    let name = |file: &PathBuf| {
        let name = file.strip_prefix(&library).ok()?.to_str()?.replace('/', ":");
        of_ollama(root, &name).map(|blob| (name, blob))
    };
    let models: Vec<(String, PathBuf)> = files.iter().filter_map(name).collect();
    let names: Vec<String> = models.iter().map(|(name, _)| name.clone()).collect();
    match &models[..] {
        [(_, blob)] => Ok(Found::File(blob.clone())),
        _ => Err(CliError::Usage {
            message: match &names[..] {
                [] => format!("{} is Ollama's folder of models", folder.display()),
                _ => format!(
                    "{} has {} Ollama models: {}",
                    folder.display(),
                    names.len(),
                    listed(&names, MAX_NAMES)
                ),
            },
            hint: format!(
                "name one as Ollama does, e.g. {}, with OLLAMA_MODELS set to {}",
                names.first().map_or("qwen3:30b", String::as_str),
                root.display()
            ),
        }),
    }
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            if depth > 1 {
                collect(&path, depth - 1, files);
            }
        } else {
            files.push(path);
        }
    }
}

/// A guess at what a name that is no file stands for; `None` if it looks like a path.
fn hint(text: &str) -> Option<String> {
    let is_path = text.starts_with(['.', '/', '~']) || text.ends_with(".gguf");
    let words =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_path {
        return None;
    }
    let id = text.split(':').next().unwrap_or(text);
    if let Some((owner, repo)) = id.split_once('/') {
        return (words(owner) && words(repo)).then(|| format!("for the model on the hub, use hf:{text}"));
    }
    let (name, tag) = text.split_once(':')?;
    (words(name) && words(tag)).then(|| {
        format!("Ollama has not downloaded it (OLLAMA_MODELS); on the hub, look for a repository of {name} named ...-GGUF, and use hf:owner/repo:TYPE")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Result<Found, CliError> {
        find(name.as_ref(), None)
    }

    fn hint_of(name: &str) -> String {
        match found(name) {
            Err(CliError::Usage { hint, .. }) => hint,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn addresses_of_the_hub_are_models() {
        let repo = "Qwen/Qwen3-30B-A3B-GGUF";
        for name in [
            format!("hf:{repo}"),
            format!("hf.co/{repo}"),
            format!("https://huggingface.co/{repo}"),
            format!("https://huggingface.co/{repo}/tree/main"),
        ] {
            assert_eq!(found(&name).unwrap(), Found::Hub(repo.into()), "{name}");
        }
        let file = format!("https://huggingface.co/{repo}/resolve/main/q4/m-Q4_K_M.gguf?download=true");
        assert_eq!(found(&file).unwrap(), Found::Hub(format!("{repo}:q4/m-Q4_K_M.gguf")));
        assert_eq!(hint_of(repo), format!("for the model on the hub, use hf:{repo}"));
        assert!(hint_of("qwen3:30b").contains("hf:owner/repo"));
        for path in ["./none", "models/none.gguf", "/none/x"] {
            assert_eq!(found(path).unwrap(), Found::File(path.into()));
        }
    }

    #[test]
    fn folders_have_one_model_or_say_which() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = dir.path().to_str().unwrap();
        assert!(hint_of(text).contains("give a .gguf file"));
        std::fs::write(path("model.safetensors"), "x").unwrap();
        assert!(hint_of(text).contains("convert_hf_to_gguf.py"));
        assert!(hint_of(path("model.safetensors").to_str().unwrap()).contains("convert_hf_to_gguf.py"));
        std::fs::create_dir_all(path("publisher/repo")).unwrap();
        for name in
            ["publisher/repo/m-00001-of-00002.gguf", "publisher/repo/m-00002-of-00002.gguf", "mmproj-x.gguf"]
        {
            std::fs::write(path(name), "x").unwrap();
        }
        let first = path("publisher/repo/m-00001-of-00002.gguf");
        assert_eq!(found(text).unwrap(), Found::File(first));
        std::fs::write(path("other.gguf"), "x").unwrap();
        assert!(hint_of(text).contains("name one, e.g. "));
    }

    #[test]
    fn models_of_ollama_are_files() {
        let dir = tempfile::tempdir().unwrap();
        let manifests = dir.path().join("manifests/registry.ollama.ai/library/qwen3");
        std::fs::create_dir_all(&manifests).unwrap();
        std::fs::create_dir_all(dir.path().join("blobs")).unwrap();
        let manifest = r#"{"layers": [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:1"},
            {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:2"}]}"#;
        std::fs::write(manifests.join("30b"), manifest).unwrap();
        let blob = dir.path().join("blobs/sha256-2");
        let find = |name: &str| find(name.as_ref(), Some(dir.path()));
        assert!(find("qwen3:30b").is_err(), "its weights are not there");
        std::fs::write(&blob, "GGUF").unwrap();
        assert_eq!(find("qwen3:30b").unwrap(), Found::File(blob));
        assert!(find("qwen3:8b").is_err());
        assert_eq!(find("../x:30b").unwrap(), Found::File("../x:30b".into()), "a path");
        // A folder with one model is that model; so are its blobs.
        let blobs = dir.path().join("blobs");
        let blob = blobs.join("sha256-2");
        for folder in [dir.path(), &blobs] {
            assert_eq!(found(folder.to_str().unwrap()).unwrap(), Found::File(blob.clone()));
        }
        std::fs::write(manifests.join("latest"), manifest).unwrap();
        assert!(hint_of(blobs.to_str().unwrap()).contains("as Ollama does, e.g. qwen3:30b"));
    }
}
