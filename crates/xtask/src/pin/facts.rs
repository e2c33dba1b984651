//! Facts that are relied on in a tree's sources: texts of `facts.toml`, and the architectures of `mtp.rs`.

use super::moved::Moved;
use super::tree::Tree;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Words by which a model's file asks whether MTP layers are loaded: llama.cpp 0.8 has a function for it.
const ASKS: [&str; 2] = ["load_mtp", "nextn_flags("];

#[derive(Deserialize)]
struct Facts {
    files: Vec<String>,
    fact: Vec<Fact>,
}

#[derive(Deserialize)]
struct Fact {
    name: String,
    /// The file of Terrace that relies on it, within `crates/`.
    used: String,
    /// The tree's file.
    file: String,
    text: String,
    /// The same in other releases.
    #[serde(default)]
    or: Vec<String>,
}

/// Looks for the texts of `facts.toml`, with `constants` in place of their names. Returns their number.
///
/// # Errors
/// The file cannot be read, or names a file of Terrace's that is not there.
pub fn compare(
    root: &Path,
    folder: &Path,
    (tree, shown): (&Tree, &str),
    constants: &BTreeMap<String, i64>,
    moved: &mut Vec<Moved>,
) -> Result<usize, String> {
    let path = folder.join("facts.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let facts: Facts = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let line_of = |name: &str| text.lines().position(|line| line.contains(name)).map_or(0, |at| at + 1);
    for file in facts.files.iter().filter(|file| !tree.path(file).is_file()) {
        let ours = format!("{shown}/facts.toml:{}", line_of(file));
        moved.push(Moved::new(&ours, file, file, "is not there"));
    }
    for fact in &facts.fact {
        if !root.join("crates").join(&fact.used).is_file() {
            return Err(format!("facts.toml: crates/{} is not there", fact.used));
        }
        let filled = |text: &String| {
            constants.iter().fold(text.clone(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), &value.to_string())
            })
        };
        let ours = format!("{shown}/facts.toml:{}", line_of(&format!("\"{}\"", fact.name)));
        let Some(source) = tree.text(&fact.file) else {
            moved.push(Moved::new(&ours, &fact.file, &fact.file, "is not there"));
            continue;
        };
        let others = || fact.or.iter().any(|text| find(&source, &filled(text)).is_ok());
        if let Err(line) = find(&source, &filled(&fact.text))
            && !others()
        {
            let theirs = format!("{}:{line}", fact.file);
            let what = format!("cannot be read there any more; crates/{} relies on it", fact.used);
            moved.push(Moved::new(&ours, &theirs, &format!("`{}`", fact.name), &what));
        }
    }
    Ok(facts.files.len() + facts.fact.len())
}

/// Looks for a text, white space aside, whose parts between `...` follow one another. Otherwise returns the
/// line up to which it is found.
fn find(source: &str, wanted: &str) -> Result<(), usize> {
    let mut squeezed = String::new();
    // The line of each byte that is kept.
    let mut lines = Vec::new();
    for (at, line) in source.lines().enumerate() {
        for c in line.chars().filter(|c| !c.is_whitespace()) {
            squeezed.push(c);
            lines.extend(std::iter::repeat_n(at + 1, c.len_utf8()));
        }
    }
    let parts = wanted.split("\n...\n").map(|part| part.split_whitespace().collect::<String>());
    let mut from = 0;
    for part in parts {
        match squeezed[from..].find(&part) {
            Some(at) => from += at + part.len(),
            None => return Err(lines.get(from.saturating_sub(1)).copied().unwrap_or(1)),
        }
    }
    Ok(())
}

/// Compares the architectures whose MTP layers are loaded on request: each is known, and its model is among
/// those that ask for `load_mtp`; and these are all. Returns their number.
///
/// # Errors
/// The table or the tree's models cannot be read.
pub fn compare_mtp(
    folder: &Path,
    (tree, shown): (&Tree, &str),
    moved: &mut Vec<Moved>,
) -> Result<usize, String> {
    let path = folder.join("mtp.rs");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table = text.lines().enumerate().filter_map(|(at, line)| {
        let (name, _) = line.trim().strip_prefix("(\"")?.split_once('"')?;
        Some((name, format!("{shown}/mtp.rs:{}", at + 1)))
    });
    let table: Vec<(&str, String)> = table.collect();
    let mut models: BTreeMap<String, usize> = BTreeMap::new();
    let entries =
        std::fs::read_dir(tree.path("src/models")).map_err(|error| format!("src/models: {error}"))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(text) = tree.text(&format!("src/models/{name}")) else { continue };
        if let Some(at) = text.lines().position(|line| ASKS.iter().any(|asks| line.contains(asks))) {
            models.insert(name, at + 1);
        }
    }
    let architectures = tree.text("src/llama-arch.cpp").unwrap_or_default();
    let mut left = models.clone();
    for (name, ours) in &table {
        if !architectures.contains(&format!("\"{name}\"")) {
            let what = "is no architecture any more";
            moved.push(Moved::new(ours, "src/llama-arch.cpp", name, what));
        } else if let Some(model) = model_of(name, models.keys()) {
            left.remove(model);
        } else {
            moved.push(Moved::new(ours, "src/models", name, "does not load MTP layers on request"));
        }
    }
    for (name, line) in left {
        let (ours, theirs) = (format!("{shown}/mtp.rs"), format!("src/models/{name}:{line}"));
        moved.push(Moved::new(&ours, &theirs, &name, "loads MTP layers on request"));
    }
    Ok(table.len())
}

/// The file of an architecture's model: named as it is, or as its beginning.
fn model_of<'a>(architecture: &str, files: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "");
    let architecture = plain(architecture);
    let known = files.filter(|file| architecture.starts_with(&plain(file.trim_end_matches(".cpp"))));
    known.max_by_key(|file| file.len()).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_white_space_aside() {
        let source = "int f(int a,\n      int b) {\n    // why\n    return a;\n}\n";
        assert_eq!(find(source, "int f(int a, int b) {"), Ok(()));
        assert_eq!(find(source, "int f(\n...\nreturn a;"), Ok(()));
        assert_eq!(find(source, "int f(\n...\nreturn b;"), Err(1));
        assert_eq!(find(source, "return a;\n...\nint f("), Err(4));
    }

    #[test]
    fn a_model_is_in_the_file_with_the_longest_beginning() {
        let files = ["qwen35.cpp", "qwen35moe.cpp", "nemotron-h.cpp", "glm4-moe.cpp"].map(String::from);
        let of = |architecture| model_of(architecture, files.iter());
        assert_eq!(of("qwen35moe"), Some("qwen35moe.cpp"));
        assert_eq!(of("qwen35"), Some("qwen35.cpp"));
        assert_eq!(of("nemotron_h_moe"), Some("nemotron-h.cpp"));
        assert_eq!(of("glm4moe"), Some("glm4-moe.cpp"));
        assert_eq!(of("llama"), None);
    }
}
