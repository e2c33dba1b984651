//! Path of the plug-in.

use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;

const NAME: &str = "libggml-terrace.so";

/// Finds the plug-in: the file that the user names, or one beside this program, or in `lib/terrace` of
/// the installation that this program's folder belongs to.
///
/// # Errors
/// There is none.
pub fn find(named: Option<&Path>) -> Result<PathBuf, CliError> {
    let none = |message| {
        CliError::Usage {
        message,
        hint: "`make plugin` builds it, and distributions have it in lib/terrace; --plugin or TERRACE_PLUGIN names another"
            .into(),
    }
    };
    // The host may look for it from another folder.
    let file = |path: &Path| path.canonicalize().ok().filter(|path| path.is_file());
    if let Some(path) = named {
        return file(path).ok_or_else(|| none(format!("there is no plug-in {}", path.display())));
    }
    let program = std::env::current_exe().map_err(CliError::io("this program's own path"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    ["", "../lib/terrace"]
        .iter()
        .find_map(|way| file(&folder.join(way).join(NAME)))
        .ok_or_else(|| none(format!("there is no plug-in {}", folder.join(NAME).display())))
}
