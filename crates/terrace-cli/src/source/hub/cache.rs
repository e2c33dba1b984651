//! The cache that all clients of a hub share: `blobs/` by content, `snapshots/COMMIT/` of links to
//! them, `refs/`.

use super::{HubError, REVISION, RemoteModel};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use terrace_platform::file::FileId;
use terrace_platform::input_file::{self, MAX_SETTINGS};
use terrace_platform::owner;

/// Folders in which clients of hubs keep their files.
pub struct Folders {
    /// The token, if the user logged in.
    pub token: PathBuf,
    pub cache: PathBuf,
}

impl Folders {
    /// Finds them by the variables that all clients know.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = path("HF_HOME").unwrap_or_else(|| {
            let caches = path("XDG_CACHE_HOME");
            let home = path("HOME").or_else(|| path("USERPROFILE"));
            let user = || home.unwrap_or_else(std::env::temp_dir).join(".cache");
            caches.unwrap_or_else(user).join("huggingface")
        });
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        Self {
            token: path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token")),
            cache: cache.unwrap_or_else(|| home.join("hub")),
        }
    }
}

/// The repositories in a cache, by name.
pub fn repositories(cache: &Path) -> Vec<RemoteModel> {
    let folders = std::fs::read_dir(cache).into_iter().flatten().flatten();
    let name = |folder: std::fs::DirEntry| {
        let name = folder.file_name().into_string().ok()?;
        let (owner, repo) = name.strip_prefix("models--")?.split_once("--")?;
        RemoteModel::parse(&format!("{owner}/{repo}")).ok()
    };
    let mut found: Vec<RemoteModel> = folders.filter_map(name).collect();
    found.sort_by_key(RemoteModel::id);
    found
}

/// A model's repository in the cache.
pub struct Cached {
    folder: PathBuf,
}

impl Cached {
    /// Names the folder of a model below `cache`; it need not exist.
    pub fn new(cache: &Path, model: &RemoteModel) -> Self {
        Self { folder: cache.join(format!("models--{}--{}", model.owner, model.repo)) }
    }

    /// The path of the content named `etag`.
    pub fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// The commit that was downloaded last; `None` means that nothing was.
    pub fn snapshot(&self) -> Option<PathBuf> {
        let commit = input_file::read_regular_text(&self.reference(), MAX_SETTINGS).ok()?;
        Some(self.folder.join("snapshots").join(commit.trim()))
    }

    /// Files of that commit, by their names in the repository.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        if let Some(snapshot) = self.snapshot() {
            list(&snapshot, &snapshot, &mut files);
        }
        files
    }

    /// Makes the blob `etag` the file `name` of `commit`, and that commit the last one.
    ///
    /// # Errors
    /// [`HubError::Cache`].
    pub fn publish(&self, name: &str, etag: &str, commit: &str) -> Result<PathBuf, HubError> {
        let path = self.folder.join("snapshots").join(commit).join(name);
        // Relative, as the cache may be moved: up to the snapshot, `snapshots` and the repository.
        let up = "../".repeat(name.split('/').count() + 1);
        let target: PathBuf = Path::new(&format!("{up}blobs/{etag}")).components().collect();
        link(&path, &target).map_err(|e| HubError::cache(&path, e))?;
        let reference = self.reference();
        write(&reference, commit).map_err(|e| HubError::cache(&reference, e))?;
        Ok(path)
    }

    /// Deletes a file of a snapshot, its content, and what else leads to the content. Contents that lie
    /// elsewhere are left alone.
    ///
    /// # Errors
    /// [`HubError::Cache`].
    pub fn remove(&self, path: &Path) -> Result<(), HubError> {
        let removed =
            |path: &Path| gone_is_fine(std::fs::remove_file(path)).map_err(|e| HubError::cache(path, e));
        let Some(content) = FileId::at(path) else { return removed(path) };
        // Where there are no symbolic links, all names are as good as the one of the content.
        for folder in ["snapshots", "blobs"] {
            let folder = self.folder.join(folder);
            let mut names = Vec::new();
            list(&folder, &folder, &mut names);
            let paths: Vec<PathBuf> = names.into_iter().map(|name| folder.join(name)).collect();
            for path in paths.iter().filter(|path| FileId::at(path) == Some(content)) {
                removed(path)?;
            }
        }
        Ok(())
    }

    fn reference(&self) -> PathBuf {
        self.folder.join("refs").join(REVISION)
    }
}

/// Makes `path` a link to `target`, in one step; another process may be about to do the same.
fn link(path: &Path, target: &Path) -> std::io::Result<()> {
    let folder = path.parent().expect("a file of a snapshot");
    std::fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = folder.join(format!(".{name}.part"));
    // Without symbolic links, it is another name of the content.
    let content = FileId::at(&folder.join(target));
    let leads_there = |link: &Path| {
        std::fs::read_link(link).is_ok_and(|found| found == target)
            || content.is_some() && FileId::at_no_link(link) == content
    };
    while !leads_there(path) {
        match owner::link(target, &part) {
            // Made by another process, or left by one that was killed.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                if !leads_there(&part) {
                    gone_is_fine(std::fs::remove_file(&part))?;
                    continue;
                }
            }
            made => made?,
        }
        gone_is_fine(std::fs::rename(&part, path))?;
    }
    Ok(())
}

/// Another process may have moved or removed the file.
fn gone_is_fine(done: std::io::Result<()>) -> std::io::Result<()> {
    match done {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Writes a small file if that is not its content already: others may be reading it.
fn write(path: &Path, content: &str) -> std::io::Result<()> {
    if input_file::read_regular_text(path, MAX_SETTINGS).is_ok_and(|found| found == content) {
        return Ok(());
    }
    terrace_store::replace_cache_file(path, content.as_bytes())
}

/// Files below `dir`, named from `root`. Folders of a snapshot are folders: a link to one, which could
/// lead round in a circle, is not followed.
fn list(root: &Path, dir: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(root, &path, files);
        } else if path.is_dir() {
            // A link.
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            files.push(name.replace(std::path::MAIN_SEPARATOR, "/"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn folders(variables: &[(&str, &str)]) -> [String; 2] {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let found = Folders::of(|name| variables.get(name).map(OsString::from));
        [found.token, found.cache].map(|path| path.to_str().unwrap().to_owned())
    }

    #[test]
    fn variables_say_where_the_cache_is() {
        let home = ("HOME", "/home/me");
        let default = ["/home/me/.cache/huggingface/token", "/home/me/.cache/huggingface/hub"];
        assert_eq!(folders(&[home]), default);
        assert_eq!(folders(&[home, ("HF_HOME", ""), ("XDG_CACHE_HOME", "")]), default);
        assert_eq!(
            folders(&[home, ("XDG_CACHE_HOME", "/x")]),
            ["/x/huggingface/token", "/x/huggingface/hub"]
        );
        assert_eq!(folders(&[home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/hf")]), ["/hf/token", "/hf/hub"]);
        assert_eq!(folders(&[("HF_HOME", "/hf"), ("HUGGINGFACE_HUB_CACHE", "/old")])[1], "/old");
        assert_eq!(folders(&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/new")])[1], "/new");
        assert_eq!(folders(&[("HF_HOME", "/hf"), ("HF_TOKEN_PATH", "/t")]), ["/t", "/hf/hub"]);
    }

    #[test]
    fn a_snapshot_is_links_into_the_blobs() {
        let dir = tempfile::tempdir().unwrap();
        let cached = Cached::new(dir.path(), &RemoteModel::parse("owner/repo").unwrap());
        for (etag, name) in [("aa", "m.gguf"), ("bb", "q4/m.gguf"), ("bb", "m.gguf"), ("bb", "m.gguf")] {
            let blob = cached.blob(etag);
            std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
            std::fs::write(blob, etag).unwrap();
            let path = cached.publish(name, etag, "c0ffee").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), etag, "{name}");
            assert!(cfg!(windows) || std::fs::read_link(path).unwrap().is_relative());
        }
        let mut files = cached.files();
        files.sort_unstable();
        assert_eq!(files, ["m.gguf", "q4/m.gguf"]);
        assert_eq!(cached.snapshot(), Some(dir.path().join("models--owner--repo/snapshots/c0ffee")));
    }

    #[test]
    fn a_removed_file_takes_its_content_and_other_names_along() {
        let dir = tempfile::tempdir().unwrap();
        let cached = Cached::new(dir.path(), &RemoteModel::parse("owner/repo").unwrap());
        let mut paths = Vec::new();
        for (etag, name) in [("aa", "a.gguf"), ("bb", "b.gguf"), ("bb", "same/b.gguf")] {
            std::fs::create_dir_all(cached.folder.join("blobs")).unwrap();
            std::fs::write(cached.blob(etag), etag).unwrap();
            paths.push(cached.publish(name, etag, "c0ffee").unwrap());
        }
        cached.remove(&paths[1]).unwrap();
        assert_eq!(cached.files(), ["a.gguf"]);
        assert!(cached.blob("aa").exists() && !cached.blob("bb").exists());
        cached.remove(&paths[1]).unwrap();
        // The content lies elsewhere: only its name goes.
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, "cc").unwrap();
        let path = paths[0].with_file_name("c.gguf");
        owner::link(&elsewhere, &path).unwrap();
        cached.remove(&path).unwrap();
        assert!(elsewhere.exists() && !path.exists());
        assert_eq!(cached.files(), ["a.gguf"]);
    }
}
