//! Sockets of programs with the plug-in, for `terrace attach`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Version of the protocol: a request in JSON on each line, with this number as `version`, and an
/// answer on each, with `ok` or `error`.
pub const PROTOCOL: u32 = 1;

/// The folder of a user's sockets: in `runtime`, the user's own for such files (`XDG_RUNTIME_DIR`), or
/// in `/tmp` by the user's number.
pub fn folder(runtime: Option<OsString>, user: u32) -> PathBuf {
    match runtime.filter(|folder| Path::new(folder).is_absolute()) {
        Some(runtime) => Path::new(&runtime).join("terrace"),
        None => PathBuf::from(format!("/tmp/terrace-{user}")),
    }
}

/// The socket of a process.
pub fn socket(folder: &Path, process: u32) -> PathBuf {
    folder.join(format!("{process}.sock"))
}

/// The processes that have a socket, by their numbers. Some may have ended.
pub fn processes(folder: &Path) -> Vec<(u32, PathBuf)> {
    let number = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> =
        entries.filter_map(|entry| Some((number(&entry.path())?, entry.path()))).collect();
    found.sort();
    found
}
