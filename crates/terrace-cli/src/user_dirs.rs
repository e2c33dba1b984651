//! The user's directories. Only this file asks the environment for them.

use std::io::ErrorKind;
use std::path::Path;
use terrace_platform::owner;
use terrace_store::UserDirs;

/// `$XDG_CONFIG_HOME/terrace` and `$XDG_CACHE_HOME/terrace`, by default in the home directory. What does not exist
/// and cannot be made is absent.
pub fn user_dirs() -> UserDirs {
    let variable = |name: &str| crate::environment::var_os(name);
    let config = UserDirs::config_of(variable).filter(|dir| is_reachable(dir));
    // Without these variables, by what the system knows of the user.
    let cache = UserDirs::cache_of(variable).or_else(|| Some(dirs::cache_dir()?.join("terrace")));
    UserDirs { config, cache: cache.filter(|dir| is_reachable(dir)) }
}

/// Returns whether the directory exists, or could be made. Accounts of services have home directories that are no
/// directories, belong to other users, or do not exist.
fn is_reachable(dir: &Path) -> bool {
    for place in dir.ancestors() {
        match place.metadata() {
            Ok(meta) => {
                return meta.is_dir() && (place == dir || owner::may_write_in(place));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn directories_below_files_are_not_reachable() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_reachable(dir.path()) && is_reachable(&dir.path().join("a/b")));
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(!is_reachable(&file) && !is_reachable(&file.join("a")));
        assert!(!is_reachable(Path::new("/dev/null/.cache/terrace")) && !is_reachable(Path::new("")));
    }
}
