//! A tree in which three things have moved.

use super::compare;
use super::tree::Tree;
use std::path::Path;

/// Copies a folder's headers, and the sources that facts are about.
fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &copied);
        } else if path
            .extension()
            .is_some_and(|one| ["h", "hpp", "cpp", "cu", "m", "txt"].iter().any(|&e| one == e))
        {
            std::fs::create_dir_all(to).unwrap();
            std::fs::copy(&path, &copied).unwrap();
        }
    }
}

fn edit(tree: &Path, file: &str, change: impl Fn(&str) -> String) {
    let path = tree.join(file);
    let (text, before) =
        (change(&std::fs::read_to_string(&path).unwrap()), std::fs::read_to_string(&path).unwrap());
    assert_ne!(text, before, "{file}");
    std::fs::write(path, text).unwrap();
}

#[test]
fn exactly_what_has_moved_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pinned = Tree::pinned(&root).unwrap();
    let (_, moved) = compare(&root, &pinned, &pinned).unwrap();
    assert_eq!(moved, []);

    let dir = tempfile::tempdir().unwrap();
    for folder in ["include", "ggml", "src", "common", "vendor", "tools/mtmd"] {
        copy(&pinned.path(folder), &dir.path().join(folder));
    }
    // A field to the front of its structure, and a value by one.
    edit(dir.path(), "ggml/src/ggml-backend-impl.h", |text| {
        let start = "struct ggml_backend_buffer_type_i {\n";
        let field = text.lines().find(|line| line.contains("(*is_host)")).unwrap();
        text.replacen(field, "", 1).replacen(start, &format!("{start}{field}\n"), 1)
    });
    edit(dir.path(), "common/common.h", |text| {
        text.replacen("COMMON_SAMPLER_TYPE_ADAPTIVE_P  = 12", "COMMON_SAMPLER_TYPE_ADAPTIVE_P  = 13", 1)
    });
    // An option with another spelling.
    edit(dir.path(), "common/arg.cpp", |text| {
        text.replacen(r#"{"--mirostat"}"#, r#"{"--mirostat", "--miro"}"#, 1)
    });
    let (_, moved) = compare(&root, &pinned, &Tree::open(dir.path()).unwrap()).unwrap();
    let names: Vec<&str> = moved.iter().map(|one| one.name()).collect();
    let expected = [
        "ggml_backend_buffer_type_i.is_host",
        "`--mirostat --miro | value | common`",
        "`--mirostat | value | common`",
        "COMMON_SAMPLER_TYPE_ADAPTIVE_P",
    ];
    assert_eq!(names, expected, "{moved:?}");
    let line = moved[0].to_string();
    assert!(line.contains("pin/abi.rs:") && line.contains("ggml-backend-impl.h:"), "{line}");
}
