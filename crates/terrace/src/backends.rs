//! Libraries of ggml's backends (`libggml-vulkan.so`): where they are looked for, and what became of
//! each.
//!
//! `TERRACE_BACKENDS` lists folders and files, separated by colons; without it, the program's own
//! folder is looked at, and `off` means nowhere. `GGML_BACKEND_PATH` adds one file, as in llama.cpp.
//! A library that is named has to load; one that is found in a folder costs a warning if it does not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use terrace_cli::error::CliError;
use terrace_cli::term::say;
use terrace_ggml::devices::libraries::{LibraryError, LoadedBackend, load_backend};

/// The variable with the folders of libraries.
const PLACES: &str = "TERRACE_BACKENDS";
/// One more library, in llama.cpp.
const ONE_MORE: &str = "GGML_BACKEND_PATH";
/// Switches ggml's Vulkan backend off, in llama.cpp where it is linked.
const NO_VULKAN: &str = "GGML_DISABLE_VULKAN";

/// Backends of devices. A folder of llama.cpp has others as well: the CPU's, which is linked into
/// this program, RPC's, which is too, and some that would compute in place of the CPU and round
/// differently (BLAS).
const OF_DEVICES: [&str; 14] = [
    "cann", "cuda", "et", "hexagon", "hip", "metal", "musa", "opencl", "openvino", "sycl", "virtgpu",
    "vulkan", "webgpu", "zdnn",
];

/// A library, and what became of it.
#[derive(Debug)]
pub struct Library {
    pub path: PathBuf,
    /// True if the user named it.
    pub named: bool,
    /// Its backend, or why it was refused.
    pub loaded: Result<LoadedBackend, LibraryError>,
}

static LIBRARIES: OnceLock<Vec<Library>> = OnceLock::new();

/// Results for the libraries that there are; empty before [`load`].
pub fn libraries() -> &'static [Library] {
    LIBRARIES.get().map_or(&[], Vec::as_slice)
}

/// Loads all libraries that there are, once, and says which were refused.
///
/// # Errors
/// A place that does not exist, or a library that was named and refused.
pub fn load() -> Result<(), CliError> {
    examine()?;
    for Library { named, loaded, .. } in libraries() {
        match loaded {
            Err(error) if *named => return Err(error.clone().into()),
            // Nothing is missing: the backend is there, or there is nothing to drive.
            Err(LibraryError::Known { .. } | LibraryError::NoDriver { .. }) | Ok(_) => {}
            Err(error) => say!("warning: {error}"),
        }
    }
    Ok(())
}

/// As [`load`], for those who say themselves what became of each.
///
/// # Errors
/// A place that does not exist.
pub fn examine() -> Result<(), CliError> {
    if LIBRARIES.get().is_none() {
        let variable = |name| terrace_cli::environment::var_os(name).filter(|value| !value.is_empty());
        let program = std::env::current_exe().ok();
        let found = find(variable(PLACES), variable(ONE_MORE), program.as_deref())?;
        let found = found.into_iter().filter(|(path, _)| !(is_vulkan(path) && variable(NO_VULKAN).is_some()));
        let load = |(path, named): (PathBuf, bool)| Library { loaded: load_backend(&path), path, named };
        // Only the main thread loads, before it starts others.
        let _ = LIBRARIES.set(found.map(load).collect());
    }
    Ok(())
}

fn is_vulkan(path: &Path) -> bool {
    backend_of(path).is_some_and(|name| name.starts_with("vulkan"))
}

/// Libraries at these places, each with whether it was named.
fn find(
    places: Option<OsString>,
    one_more: Option<OsString>,
    program: Option<&Path>,
) -> Result<Vec<(PathBuf, bool)>, CliError> {
    let mut found = Vec::new();
    match places {
        Some(places) if places == "off" => {}
        Some(places) => {
            for place in std::env::split_paths(&places).filter(|place| !place.as_os_str().is_empty()) {
                let metadata = std::fs::metadata(&place);
                let metadata = metadata.map_err(CliError::io(format!("{PLACES}: {}", place.display())))?;
                if metadata.is_dir() {
                    found.extend(in_folder(&place)?.into_iter().map(|path| (path, false)));
                } else {
                    found.push((place, true));
                }
            }
        }
        // A folder that cannot be listed has no libraries for this program.
        None => {
            let folder = program.and_then(Path::parent);
            let beside = folder.and_then(|folder| in_folder(folder).ok()).unwrap_or_default();
            found.extend(beside.into_iter().map(|path| (path, false)));
        }
    }
    found.extend(one_more.map(|path| (path.into(), true)));
    Ok(found)
}

/// The libraries of devices' backends in a folder, in order of their names.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = || CliError::io(format!("{PLACES}: {}", folder.display()));
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        let of_device = |name: &str| OF_DEVICES.iter().any(|known| is_variant(name, known));
        if backend_of(&path).is_some_and(|name| of_device(&name)) {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// `vulkan` of `libggml-vulkan.so`; `None` means that the file is no library of a backend.
fn backend_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("libggml-")?.strip_suffix(".so").map(str::to_owned)
}

/// Returns true if `name` is that of a backend, or of a variant of it (`cuda-12`).
fn is_variant(name: &str, backend: &str) -> bool {
    name.strip_prefix(backend).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn folder(files: &[&str]) -> TempDir {
        let dir = TempDir::new().unwrap();
        for file in files {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        dir
    }

    #[test]
    fn folders_have_the_backends_of_devices() {
        let dir = folder(&[
            "libggml-base.so",
            "libggml-base.so.0",
            "libggml-cpu-haswell.so",
            "libggml-cuda-12.so",
            "libggml-rpc.so",
            "libggml-blas.so",
            "libggml-vulkan.so",
            "libggml-vulkan.so.0",
            "libggml.so",
            "libggml-etude.so",
            "terrace",
        ]);
        let expected: Vec<(PathBuf, bool)> =
            ["libggml-cuda-12.so", "libggml-vulkan.so"].map(|name| (dir.path().join(name), false)).into();
        let program = dir.path().join("terrace");
        assert_eq!(find(None, None, Some(&program)).unwrap(), expected);
        assert_eq!(find(Some(dir.path().into()), None, None).unwrap(), expected);
        assert_eq!(find(Some("off".into()), None, Some(&program)).unwrap(), []);
        assert_eq!(find(None, None, Some(Path::new("/nonexistent/terrace"))).unwrap(), []);
    }

    #[test]
    fn files_are_named() {
        let (dir, other) = (folder(&["mine.so"]), folder(&["libggml-hip.so"]));
        let file = dir.path().join("mine.so");
        let places = std::env::join_paths([other.path(), &file]).unwrap();
        let found = find(Some(places), Some("/nonexistent/libggml-cuda.so".into()), None).unwrap();
        let expected = [
            (other.path().join("libggml-hip.so"), false),
            (file, true),
            ("/nonexistent/libggml-cuda.so".into(), true),
        ];
        assert_eq!(found, expected);
        let error = find(Some("/nonexistent/folder".into()), None, None).unwrap_err();
        assert!(error.to_string().starts_with("TERRACE_BACKENDS: /nonexistent/folder: "), "{error}");
    }
}
