//! The user's directories. Only this file asks the environment for them.

use terrace_store::UserDirs;

/// `$XDG_CONFIG_HOME/terrace` and `$XDG_CACHE_HOME/terrace`, by default in the home directory.
pub fn user_dirs() -> UserDirs {
    let config = UserDirs::config_of(|name| crate::environment::var_os(name));
    UserDirs { config, cache: dirs::cache_dir().map(|dir| dir.join("terrace")) }
}
