//! Where the user's own settings are.

use std::path::PathBuf;

/// The user's directory: `$XDG_CONFIG_HOME/terrace`. None without a home.
pub fn user_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("terrace"))
}
