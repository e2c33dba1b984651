//! A source tree of llama.cpp.

use crate::metadata::packages;
use std::path::{Path, PathBuf};

/// Folders with headers, as `terrace-ggml/build.rs` and the shims need them.
const FOLDERS: [&str; 8] =
    ["src", "common", "tools/mtmd", "include", "ggml/include", "ggml/src", "ggml/src/ggml-cpu", "vendor"];

/// Headers with what Terrace declares by hand or calls.
pub const HEADERS: [&str; 15] = [
    "ggml/include/ggml.h",
    "ggml/include/ggml-backend.h",
    "ggml/include/ggml-cpu.h",
    "ggml/include/gguf.h",
    "ggml/src/ggml-backend-impl.h",
    "ggml/src/ggml-impl.h",
    "ggml/src/ggml-cpu/ggml-cpu-impl.h",
    "ggml/src/ggml-cpu/ops.h",
    "ggml/src/ggml-cpu/unary-ops.h",
    "ggml/src/ggml-cpu/binary-ops.h",
    "ggml/src/ggml-cpu/tiled/tiled.h",
    "include/llama.h",
    "tools/mtmd/mtmd.h",
    "tools/mtmd/mtmd-helper.h",
    "common/common.h",
];

/// The sources of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree(PathBuf);

impl Tree {
    /// Opens a folder.
    ///
    /// # Errors
    /// It holds no llama.cpp.
    pub fn open(folder: &Path) -> Result<Self, String> {
        match folder.join("include/llama.h").is_file() {
            true => Ok(Self(folder.into())),
            false => Err(format!("{} holds no sources of llama.cpp", folder.display())),
        }
    }

    /// Finds the sources that the pinned `llama-cpp-sys-2` carries, in cargo's registry.
    ///
    /// # Errors
    /// Cargo's.
    pub fn pinned(root: &Path) -> Result<Self, String> {
        let packages = packages(root, "x86_64-unknown-linux-gnu")?;
        let sys = packages.iter().find(|package| package.name == "llama-cpp-sys-2");
        let manifest = &sys.ok_or("cargo metadata has no llama-cpp-sys-2")?.manifest_path;
        Self::open(&Path::new(manifest).with_file_name("llama.cpp"))
    }

    /// A file's path.
    pub fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// A file's text; `None` if there is none.
    pub fn text(&self, file: &str) -> Option<String> {
        std::fs::read(self.path(file)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The folders with headers, as options of a compiler.
    pub fn includes(&self) -> impl Iterator<Item = String> {
        FOLDERS.iter().map(|folder| format!("-I{}", self.path(folder).display()))
    }

    /// Place at which a header declares a function, a constant or a structure, as `file:line`; if none does, the first
    /// header that it is looked for in.
    pub fn place_of(&self, name: &str) -> String {
        let declares = |line: &str| is_declared(line, name);
        let found = HEADERS.iter().find_map(|file| {
            let at = self.text(file)?.lines().position(declares)?;
            Some(format!("{file}:{}", at + 1))
        });
        found.unwrap_or_else(|| "not in its headers".into())
    }

    /// Place of a structure's field; the structure's place if it has none.
    pub fn place_of_field(&self, structure: &str, field: &str) -> String {
        let found = HEADERS.iter().find_map(|file| {
            let text = self.text(file)?;
            let lines = || text.lines().enumerate().skip_while(|(_, line)| !opens(line, structure)).skip(1);
            let mut body = lines().take_while(|(_, line)| !line.trim_start().starts_with("};"));
            let (at, _) = body.find(|(_, line)| has_word(code(line), field))?;
            Some(format!("{file}:{}", at + 1))
        });
        found.unwrap_or_else(|| self.place_of(structure))
    }

    /// The value of a `#define`, if a header has one that is a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        let start = format!("#define {name} ");
        HEADERS.iter().find_map(|file| {
            let text = self.text(file)?;
            text.lines().find_map(|line| line.trim().strip_prefix(&start)?.trim().parse().ok())
        })
    }

    /// The version of its ggml.
    pub fn ggml_version(&self) -> Option<String> {
        let text = self.text("ggml/CMakeLists.txt")?;
        let number = |part: &str| {
            let start = format!("set(GGML_VERSION_{part} ");
            let line = text.lines().find_map(|line| line.trim().strip_prefix(&start))?;
            Some(line.trim_end_matches(')').trim().to_owned())
        };
        Some([number("MAJOR")?, number("MINOR")?, number("PATCH")?].join("."))
    }

    /// The text of a structure without comments and white space; `None` if no header has it.
    pub fn body_of(&self, structure: &str) -> Option<String> {
        HEADERS.iter().find_map(|file| {
            let text = self.text(file)?;
            let mut lines = text.lines().skip_while(|line| !opens(line, structure)).peekable();
            lines.peek()?;
            let body = lines.take_while(|line| !line.trim_start().starts_with("};"));
            Some(body.flat_map(|line| code(line).split_whitespace()).collect::<Vec<_>>().join(" "))
        })
    }
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// True if a line begins the definition of a structure.
fn opens(line: &str, structure: &str) -> bool {
    let line = line.trim_start();
    let rest = line.strip_prefix("typedef ").unwrap_or(line).strip_prefix("struct ");
    rest.and_then(|rest| rest.strip_prefix(structure)).is_some_and(|rest| rest.trim_start().starts_with('{'))
}

/// Returns true if a line declares a name: a function, a constant with a value or in a list, a structure.
fn is_declared(line: &str, name: &str) -> bool {
    let line = code(line);
    let Some(at) = position_of(line, name) else { return false };
    let (before, after) = (line[..at].trim(), line[at + name.len()..].trim_start());
    let value = after.starts_with(['=', ',']) || after.is_empty();
    let is_type = opens(line, name);
    let is_constant = before.is_empty() && value || before.ends_with("#define");
    // A call would have no type before it.
    let is_function = after.starts_with('(') && !before.is_empty() && !before.ends_with(['(', ',', '.', '=']);
    is_type || is_constant || is_function
}

/// True if a text has a name as a word.
pub fn has_word(text: &str, name: &str) -> bool {
    position_of(text, name).is_some()
}

fn position_of(text: &str, name: &str) -> Option<usize> {
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name)
        .map(|(at, _)| at)
        .find(|&at| !text[..at].ends_with(part_of_word) && !text[at + name.len()..].starts_with(part_of_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_found_and_uses_are_not() {
        for (line, name) in [
            ("    LLAMA_API int32_t llama_decode(", "llama_decode"),
            ("    GGML_TYPE_Q4_0 = 2, // four", "GGML_TYPE_Q4_0"),
            ("    COMMON_GRAMMAR_TYPE_USER,", "COMMON_GRAMMAR_TYPE_USER"),
            ("#define GGML_BACKEND_API_VERSION 3", "GGML_BACKEND_API_VERSION"),
            ("    struct ggml_backend_reg {", "ggml_backend_reg"),
        ] {
            assert!(is_declared(line, name), "{line}");
            assert!(!is_declared(line, &name[1..]), "{line}");
        }
        for line in ["// see llama_decode()", "    llama_decode(context);", "x = f(llama_decode);"] {
            assert!(!is_declared(line, "llama_decode"), "{line}");
        }
    }
}
