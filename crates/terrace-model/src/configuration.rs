//! Names in the configuration file, for all that read it: the program, and its plug-in for other
//! programs, which has few of the settings.

/// The keys that have a meaning for one command or for several, a line each. `cargo xtask docs` writes them from the
/// program's options.
const KEYS: &str = include_str!("keys.txt");

/// The keys that have a meaning.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.lines()
}

/// Returns whether a key has a meaning.
pub fn is_key(name: &str) -> bool {
    keys().any(|key| key == name)
}

/// Reads the text of a configuration file.
///
/// # Errors
/// The line that is not TOML, and the reason, in one line.
pub fn table(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or("", |span| &text[..span.start.min(text.len())]);
        let reason: Vec<&str> = error.message().split_whitespace().collect();
        format!("line {}: {}", 1 + before.matches('\n').count(), reason.join(" "))
    })
}

/// Returns the option that a key sets, which may have underscores or an old name.
pub fn option_of(key: &str) -> String {
    let name = key.replace('_', "-");
    let new = RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| (*new).to_owned());
    new.unwrap_or(name)
}

/// Returns the environment variable of an option.
pub fn variable(option: &str) -> String {
    format!("TERRACE_{}", option.replace('-', "_").to_uppercase())
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
