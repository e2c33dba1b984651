//! Names used through the bindings, which are those of the pinned release: compares that release with
//! another tree.

use super::compiler::Compiler;
use super::moved::Moved;
use super::probe::includes;
use super::tree::{Tree, has_word};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Compares functions, constants and structures that terrace-ggml names. Returns their number.
///
/// # Errors
/// Sources cannot be read, or a tree's headers not be compiled.
pub fn compare(
    compiler: &Compiler,
    crate_folder: &Path,
    (pinned, tree): (&Tree, &Tree),
    moved: &mut Vec<Moved>,
) -> Result<usize, String> {
    let names = used(&crate_folder.join("src"))?;
    let shown = |place: &str| format!("pinned {place}");
    let before = describe(compiler, pinned, &names)?;
    let now = describe(compiler, tree, &names)?;
    let mut compared = 0;
    for (name, was) in &before {
        compared += 1;
        let what = match now.get(name) {
            None => "is not there".to_owned(),
            Some(is) if is != was && was.parse::<i64>().is_ok() => format!("is {is}, here {was}"),
            Some(is) if is != was => "has another type".to_owned(),
            Some(_) => continue,
        };
        moved.push(Moved::new(&shown(&pinned.place_of(name)), &tree.place_of(name), name, &what));
    }
    for name in names.iter().filter(|name| !before.contains_key(*name)) {
        let Some(was) = pinned.body_of(name) else { continue };
        compared += 1;
        if tree.body_of(name).as_ref() != Some(&was) {
            let what = "has other fields";
            moved.push(Moved::new(&shown(&pinned.place_of(name)), &tree.place_of(name), name, what));
        }
    }
    Ok(compared)
}

/// The types of functions and the values of constants among names. Others are left out.
fn describe(
    compiler: &Compiler,
    tree: &Tree,
    names: &BTreeSet<String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut names: Vec<&String> = names.iter().collect();
    let head = includes(tree, &mut Vec::new())
        + "template <class T> void show(const char * name) { printf(\"%s %s\\n\", name, __PRETTY_FUNCTION__); }\n";
    // One that is not there keeps the program from being compiled.
    let mut text = head.clone();
    for name in &names {
        let _ = writeln!(text, "using name_{name} = decltype(&::{name});");
    }
    let constant =
        |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    for name in names.iter().filter(|name| constant(name)) {
        text = text.replace(
            &format!("using name_{name} = decltype(&::{name});\n"),
            &format!("constexpr long long name_{name} = (long long) ({name});\n"),
        );
    }
    let first = head.lines().count() + 1;
    let complaints = compiler.check(tree, "names.cpp", &text)?;
    let missing: BTreeSet<usize> = complaints.iter().map(|one| one.line).collect();
    let mut at = first;
    names.retain(|_| {
        at += 1;
        !missing.contains(&(at - 1))
    });
    let mut text = head + "int main() {\n";
    for name in names {
        let _ = match constant(name) {
            true => writeln!(text, "printf(\"{name} %lld\\n\", (long long) ({name}));"),
            false => writeln!(text, "show<decltype(&::{name})>(\"{name}\");"),
        };
    }
    text += "}\n";
    let printed = compiler.run(tree, "describe.cpp", &text)?;
    let pairs = printed.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The names of ggml and llama.cpp that the sources of Rust in a folder have as words.
fn used(folder: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            names.extend(used(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let of_bindings = has_word(&text, "llama_cpp_sys_2");
            names.extend(words(&text).filter(|_| of_bindings));
        }
    }
    Ok(names)
}

/// The words of a text's code that begin like names of ggml and llama.cpp.
fn words(text: &str) -> impl Iterator<Item = String> {
    const BEGINNINGS: [&str; 8] = ["ggml_", "gguf_", "llama_", "mtmd_", "GGML_", "GGUF_", "LLAMA_", "MTMD_"];
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let known = words.filter(|word| BEGINNINGS.iter().any(|beginning| word.starts_with(beginning)));
    known.map(str::to_owned)
}
