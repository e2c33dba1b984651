//! Assembly that takes vectors.

use std::fs;
use std::path::{Path, PathBuf};

/// A build for processors without the vectors has registers for them only in functions that ask for them. On a machine that
/// has them, nothing else tells.
#[test]
fn functions_with_vectors_in_assembly_say_which_instructions_they_need() {
    let mut seen = 0;
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        let operands = ["(xmm_reg)", "(ymm_reg)", "(zmm_reg)"].map(|class| text.match_indices(class));
        for (at, _) in operands.into_iter().flatten() {
            seen += 1;
            let function = text[..at].rfind("fn ").unwrap();
            let item = text[..function].rfind("\n\n").unwrap_or(0);
            let attributes = &text[item..function];
            assert!(attributes.contains("target_feature"), "{}: {attributes}", path.display());
        }
    }
    assert!(seen > 0);
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let within = folders.iter().flat_map(|folder| sources(folder));
    within.chain(files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "rs"))).collect()
}
