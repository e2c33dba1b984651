//! Texts that come from a hub or name something on one, without connections.

use super::http::resolved;
use super::remote::{RemoteModel, choices, shards_of};
use std::path::{Component, Path};
use ureq::http::Uri;

/// Reads a model's name, and a listing of files, one a line.
///
/// # Panics
/// A name would leave the cache.
pub fn name(text: &str) {
    if let Ok(model) = RemoteModel::parse(text) {
        let again = match &model.file {
            Some(file) => RemoteModel::parse(&format!("{}:{file}", model.id())),
            None => RemoteModel::parse(&model.id()),
        };
        assert_eq!(again.ok().as_ref(), Some(&model));
        for part in [Some(&model.owner), Some(&model.repo), model.file.as_ref()].into_iter().flatten() {
            stays(part);
        }
    }
    let files: Vec<String> = text.lines().map(str::to_owned).collect();
    for file in choices(&files) {
        stays(&file);
        shards_of(&file).iter().for_each(|shard| stays(shard));
    }
}

fn stays(path: &str) {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    assert!(Path::new(path).components().all(plain) && !path.is_empty(), "{path}");
}

/// Reads where an answer redirects to.
///
/// # Panics
/// A path leads to another host.
pub fn location(text: &str) {
    let from = Uri::from_static("https://hub.example/a/b?c=d");
    let Some(to) = resolved(&from, text) else { return };
    assert!(matches!(to.scheme_str(), Some("http" | "https")), "{to}");
    if text.starts_with('/') {
        assert_eq!((to.scheme(), to.authority()), (from.scheme(), from.authority()), "{to}");
    }
    // As the next request will parse it.
    let again: Uri = to.to_string().parse().expect("an address is shown as one");
    assert_eq!(again.authority(), to.authority(), "{to}");
}
