//! The header of the library for C, written from its Rust sources.

use std::path::Path;

/// The crate, and the header in it.
const CRATE: &str = "crates/terrace-c";
const HEADER: &str = "include/terrace.h";

/// Sources with what the header declares.
const SOURCES: [&str; 5] =
    ["src/status.rs", "src/edge.rs", "src/model.rs", "src/session.rs", "src/exports.rs"];

/// Writes the header, and names it.
///
/// # Errors
/// A source cannot be read, or the header not be written.
pub fn write(root: &Path) -> Result<String, String> {
    let path = root.join(CRATE).join(HEADER);
    std::fs::write(&path, generated(root)?).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

/// The header as the sources are now.
///
/// # Errors
/// A source or the configuration cannot be read.
fn generated(root: &Path) -> Result<Vec<u8>, String> {
    let folder = root.join(CRATE);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES.iter().fold(builder, |builder, source| builder.with_src(folder.join(source)));
    let bindings = builder.generate().map_err(|error| format!("{CRATE}: {error}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    // Sections about safety are for Rust: a C programmer finds the same in the arguments.
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    Ok(without_safety(&text).into_bytes())
}

/// Leaves out the sections of comments that only Rust has.
fn without_safety(text: &str) -> String {
    let (mut kept, mut within) = (Vec::new(), false);
    for line in text.lines() {
        within = line.starts_with("//") && (within || line == "// # Safety");
        if within {
            // The empty line before it.
            if line == "// # Safety" && kept.last() == Some(&"//") {
                kept.pop();
            }
            continue;
        }
        kept.push(line);
    }
    kept.join("\n") + "\n"
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let there = std::fs::read_to_string(root.join(CRATE).join(HEADER)).unwrap();
        let now = String::from_utf8(generated(&root).unwrap()).unwrap();
        assert!(there == now, "stale: run `cargo xtask docs`");
        assert!(now.contains("terrace_session_generate") && !now.contains("# Safety"), "{now}");
    }
}
