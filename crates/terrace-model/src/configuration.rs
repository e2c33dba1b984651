//! Names in the configuration file, for all that read it: the program, and its plug-in for other
//! programs, which has few of the settings.

/// The keys that have a meaning for one command or for several, a line each. `cargo xtask docs` writes them from the
/// program's options.
const KEYS: &str = include_str!("keys.txt");

/// The keys that have a meaning.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.lines()
}

/// The table with a section for each of a server's models.
pub const MODELS: &str = "models";

/// Old names of keys, with the new ones.
pub const RENAMED: &[(&str, &str)] = &[
    ("manage", "stream"),
    ("profile", "timeline"),
    ("no-profile", "no-timeline"),
    ("hotswap", "reload-loop"),
];
