//! The user's directories. Only this file asks the environment for them.

use std::path::PathBuf;
use terrace_store::UserDirs;

/// `$XDG_CONFIG_HOME/terrace` and `$XDG_CACHE_HOME/terrace`, by default in the home directory.
pub fn user_dirs() -> UserDirs {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let terrace = |dir: PathBuf| dir.join("terrace");
    UserDirs { config: config.map(terrace), cache: dirs::cache_dir().map(terrace) }
}
