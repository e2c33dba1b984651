//! `cargo xtask pin [TREE]`: compares everything in `terrace-ggml/src/pin` with a source tree of llama.cpp, and
//! names what has moved. Without TREE, that is the one of the pinned `llama-cpp-sys-2`.

mod arguments;
mod bindings;
mod compiler;
mod declared;
mod facts;
mod moved;
mod probe;
mod shims;
#[cfg(test)]
mod tests;
pub mod tree;

use compiler::Compiler;
use declared::Declared;
use moved::Moved;
use std::fmt::Write as _;
use std::path::Path;
use tree::Tree;

/// The folder, within the repository.
const FOLDER: &str = "crates/terrace-ggml/src/pin";

/// Compares with a tree. Returns what to print if everything matches.
///
/// # Errors
/// What has moved, a line each; or why nothing could be compared.
pub fn check(root: &Path, tree: Option<&str>) -> Result<String, String> {
    let pinned = Tree::pinned(root)?;
    let tree = tree.map_or(Ok(pinned.clone()), |tree| Tree::open(Path::new(tree)))?;
    let (compared, moved) = compare(root, &pinned, &tree)?;
    if moved.is_empty() {
        return Ok(format!("{compared}: all as in {}", tree.path("").display()));
    }
    let lines: Vec<String> = moved.iter().map(ToString::to_string).collect();
    Err(format!("{} of {compared} moved:\n{}", lines.len(), lines.join("\n")))
}

/// Writes the list of the options of llama.cpp's programs, as a tree has them. Returns its path.
///
/// # Errors
/// As [`check`]; the list cannot be written.
pub fn write_arguments(root: &Path, tree: Option<&str>) -> Result<String, String> {
    let tree = tree.map_or_else(|| Tree::pinned(root), |tree| Tree::open(Path::new(tree)))?;
    arguments::write(&root.join(FOLDER), &tree)
}

/// Compares everything. Returns how much that was, and what has moved.
fn compare(root: &Path, pinned: &Tree, tree: &Tree) -> Result<(String, Vec<Moved>), String> {
    let folder = root.join(FOLDER);
    let (compiler, mut moved) = (Compiler::new()?, Vec::new());
    let declared = Declared::read(&folder, FOLDER)?;
    let declarations = probe::compare(&compiler, tree, &declared, &mut moved)?;
    let facts = facts::compare(root, &folder, (tree, FOLDER), &declared.constants, &mut moved)?;
    let architectures = facts::compare_mtp(&folder, (tree, FOLDER), &mut moved)?;
    let headers = shims::compare_headers(&folder, (tree, FOLDER), &mut moved)?;
    let shims = shims::compile(&folder, (tree, FOLDER), &mut moved)?;
    let arguments = arguments::compare(&folder, (tree, FOLDER), &mut moved)?;
    let mut compared = format!(
        "{declarations} declarations, {shims} shims, {facts} facts, {architectures} architectures, {headers} headers, {arguments} \
         options"
    );
    // The compiler has compared the pinned release's own.
    if pinned != tree {
        let names =
            bindings::compare(&compiler, &root.join("crates/terrace-ggml"), (pinned, tree), &mut moved)?;
        let _ = write!(compared, ", {names} names of the bindings");
    }
    moved.sort();
    moved.dedup();
    Ok((compared, moved))
}
