//! Names on a hub: repositories, models in them, shards of models.

use super::HubError;
use std::collections::BTreeSet;

/// The text after `hf:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteModel {
    /// User or organisation.
    pub owner: String,
    /// Repository.
    pub repo: String,
    /// File in it, or a part of its name such as `Q4_K_M`; none: the only model there.
    pub file: Option<String>,
}

impl RemoteModel {
    /// Reads `owner/repo[:file]`.
    ///
    /// # Errors
    /// [`HubError::Name`].
    pub fn parse(text: &str) -> Result<Self, HubError> {
        let name = |reason| HubError::Name { text: text.into(), reason };
        let (id, file) = match text.split_once(':') {
            Some((id, file)) => (id, Some(file)),
            None => (text, None),
        };
        let (owner, repo) =
            id.split_once('/').ok_or_else(|| name("there is no / between owner and repository"))?;
        // What the hub allows; also keeps the names from being paths in the cache.
        let valid = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if !valid(owner) || !valid(repo) {
            return Err(name("owner and repository are letters, digits, `-`, `_` and `.`"));
        }
        if file.is_some_and(|file| !is_plain(file)) {
            return Err(name("the file must be a path within the repository"));
        }
        Ok(Self { owner: owner.into(), repo: repo.into(), file: file.map(String::from) })
    }

    /// `owner/repo`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.owner, self.repo)
    }
}

/// Returns true if a path from outside stays within the folder that it is joined to.
fn is_plain(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', '\0', '?', '#', '%'])
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// A split model's file name, taken apart: prefix, number and count (`m-00002-of-00005.gguf`).
fn split_name(file: &str) -> Option<(&str, u32, u32)> {
    let stem = file.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| -> Option<u32> {
        (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let (number, count) = (digits(number)?, digits(count)?);
    (1..=count).contains(&number).then_some((prefix, number, count))
}

/// The first file of the model that `file` belongs to.
pub fn first_shard_of(file: &str) -> String {
    match split_name(file) {
        Some((prefix, _, count)) => shard_name(prefix, 1, count),
        None => file.to_owned(),
    }
}

fn shard_name(prefix: &str, number: u32, count: u32) -> String {
    format!("{prefix}-{number:05}-of-{count:05}.gguf")
}

/// All files of the model that `file` belongs to, the first shard first.
pub fn shards_of(file: &str) -> Vec<String> {
    match split_name(file) {
        Some((prefix, _, count)) => (1..=count).map(|number| shard_name(prefix, number, count)).collect(),
        None => vec![file.to_owned()],
    }
}

/// The models among a repository's files, split ones by their first shard. Projectors for images
/// are no models.
pub fn choices(files: &[String]) -> Vec<String> {
    let models = files.iter().filter(|file| {
        let base = file.rsplit('/').next().unwrap_or(file);
        file.ends_with(".gguf") && !base.starts_with("mmproj") && is_plain(file)
    });
    let by_model: BTreeSet<String> = models.map(|file| first_shard_of(file)).collect();
    by_model.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let model = RemoteModel::parse("Qwen/Qwen3-30B-A3B-GGUF:sub/m-Q4_K_M.gguf").unwrap();
        assert_eq!(model.id(), "Qwen/Qwen3-30B-A3B-GGUF");
        assert_eq!(model.file.as_deref(), Some("sub/m-Q4_K_M.gguf"));
        assert_eq!(RemoteModel::parse("a/b").unwrap().file, None);
    }

    #[test]
    fn names_that_would_leave_the_cache_are_refused() {
        for text in
            ["", "a", "a/", "/b", "a/b/c", "../b", "a/..", "a/b:", "a/b:../x", "a/b:/x", "a/b:x//y", "a b/c"]
        {
            assert!(matches!(RemoteModel::parse(text), Err(HubError::Name { .. })), "{text}");
        }
    }

    #[test]
    fn split_models_are_one_model() {
        let files = ["README.md", "q8/m-00002-of-00002.gguf", "q8/m-00001-of-00002.gguf", "mmproj-f16.gguf"];
        let found = choices(&files.map(String::from));
        assert_eq!(found, ["q8/m-00001-of-00002.gguf"]);
        assert_eq!(
            shards_of("q8/m-00002-of-00002.gguf"),
            ["q8/m-00001-of-00002.gguf", "q8/m-00002-of-00002.gguf"]
        );
        assert_eq!(shards_of("m-1-of-2.gguf"), ["m-1-of-2.gguf"]);
    }

    /// With all names of each model, this would be two thousand million names.
    #[test]
    fn names_of_models_with_many_shards_cost_no_more_than_others() {
        let files: Vec<String> = (0..20_000).map(|i| format!("{i}-00002-of-99999.gguf")).collect();
        let found = choices(&files);
        assert_eq!(found.len(), files.len());
        assert!(found.contains(&"77-00001-of-99999.gguf".to_owned()));
    }
}
