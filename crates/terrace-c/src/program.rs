//! The program `terrace`, which applies chat templates in processes of its own (decision 0029): this process is
//! another program.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Once;
use terrace_cli::environment;
use terrace_engine::use_chat_worker;
use terrace_platform::library;

/// Looked for once, unless the caller names one before.
static FOUND: Once = Once::new();

/// Takes the program from here on.
pub fn set(program: &Path) {
    FOUND.call_once(|| {});
    use_chat_worker(program.to_owned());
}

/// Looks for the program, unless there is one: beside the library, in the `bin` of its folder's parents, then in
/// `PATH`. If there is none, templates fail and say so.
pub fn find() {
    FOUND.call_once(|| {
        let near = near_the_library();
        if let Some(program) = near.into_iter().chain(in_path()).find(|path| path.is_file()) {
            use_chat_worker(program);
        }
    });
}

fn near_the_library() -> Vec<PathBuf> {
    let here = near_the_library as fn() -> Vec<PathBuf> as *const c_void;
    let Some(file) = library::file_of(here) else { return Vec::new() };
    let file = Path::new(&file).canonicalize().unwrap_or_else(|_| PathBuf::from(&file));
    let folders = file.ancestors().skip(1).take(5);
    folders.flat_map(|folder| [folder.join("terrace"), folder.join("bin/terrace")]).collect()
}

fn in_path() -> Vec<PathBuf> {
    let path = environment::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|f| f.join("terrace")).collect()
}
