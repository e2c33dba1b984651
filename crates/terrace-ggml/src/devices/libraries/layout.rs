//! Checks that a library was built for this program's ggml.

use super::error::LibraryError;
use llama_cpp_sys_2 as sys;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::path::{Path, PathBuf};
use terrace_platform::library::{Object, file_of};

/// The version of this program's ggml, such as `0.26.0`.
pub fn version() -> String {
    // SAFETY: a static C string.
    unsafe { CStr::from_ptr(sys::ggml_version()) }.to_string_lossy().into_owned()
}

/// Compares the ggml in the folder of a library with this program's; `None` means that there is none.
/// The files `libggml-base.so*` are looked at themselves, because the linker takes one that is loaded
/// already for every one of the same name. Nothing of the library is loaded.
///
/// # Errors
/// As [`compare`].
pub fn compare_beside(path: &Path) -> Result<Option<String>, LibraryError> {
    // A link leads to where its library was installed.
    let Ok(file) = path.canonicalize() else { return Ok(None) };
    let Some(Ok(entries)) = file.parent().map(std::fs::read_dir) else { return Ok(None) };
    let is_base = |path: &PathBuf| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("libggml-base.so"))
    };
    let files = entries.flatten().map(|entry| entry.path()).filter(is_base);
    let mut version = None;
    for base in files.filter_map(|base| base.canonicalize().ok()).collect::<BTreeSet<_>>() {
        let base = Object::open(&base).map_err(|reason| LibraryError::Open { path: base.clone(), reason })?;
        version = Some(compare(&base, path)?);
    }
    Ok(version)
}

/// The file that tells which ggml a library was built for.
pub fn base_of(object: &Object) -> Option<PathBuf> {
    file_of(object.symbol(c"ggml_version")?.as_ptr()).map(|name| PathBuf::from(&*name))
}

/// Compares the ggml that a library was built for with this program's. Returns its version and
/// commit.
///
/// The called functions have no argument, or a number, and are those of the `libggml-base` that the
/// library depends on. They return constants, and are the same in all releases of ggml that have
/// `ggml_version`.
///
/// # Errors
/// A ggml of unknown version, of another one, or of another layout.
pub fn compare(object: &Object, path: &Path) -> Result<String, LibraryError> {
    let (ours, path) = (version(), path.to_owned());
    let Some(theirs) = constant(object, c"ggml_version") else {
        return Err(LibraryError::NoVersion { path, ours });
    };
    let commit = constant(object, c"ggml_commit").unwrap_or_else(|| "unknown".into());
    if theirs != ours {
        return Err(LibraryError::Version { path, theirs: format!("{theirs} (commit {commit})"), ours });
    }
    match difference(object) {
        Some(difference) => Err(LibraryError::Layout { path, ours, commit, difference }),
        None => Ok(format!("{theirs} (commit {commit})")),
    }
}

/// The text that a function of the library returns.
fn constant(object: &Object, name: &CStr) -> Option<String> {
    let function = object.symbol(name)?;
    // SAFETY: `ggml_version` and `ggml_commit` have this type in every release that has them, and
    // return static strings.
    unsafe {
        let function: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(function.as_ptr());
        Some(CStr::from_ptr(function()).to_string_lossy().into_owned())
    }
}

/// Difference in sizes and operations, which a version does not show: it stays the same between
/// two releases.
fn difference(object: &Object) -> Option<String> {
    let sizes: [(&CStr, usize); 2] = [
        // SAFETY: no preconditions.
        (c"ggml_tensor_overhead", unsafe { sys::ggml_tensor_overhead() }),
        // SAFETY: no preconditions.
        (c"ggml_graph_overhead", unsafe { sys::ggml_graph_overhead() }),
    ];
    for (name, ours) in sizes {
        let Some(function) = object.symbol(name) else {
            return Some(format!("it has no {}", name.to_string_lossy()));
        };
        // SAFETY: these functions have this type in every release of ggml.
        let theirs = unsafe {
            let function: unsafe extern "C" fn() -> usize = std::mem::transmute(function.as_ptr());
            function()
        };
        if theirs != ours {
            return Some(format!("{} is {theirs} bytes, not {ours}", name.to_string_lossy()));
        }
    }
    let Some(name_of) = object.symbol(c"ggml_op_name") else {
        return Some("it has no ggml_op_name".into());
    };
    let home = file_of(name_of.as_ptr());
    // SAFETY: it has this type in every release of ggml.
    let name_of: unsafe extern "C" fn(c_int) -> *const c_char =
        unsafe { std::mem::transmute(name_of.as_ptr()) };
    for op in 0..sys::GGML_OP_COUNT {
        // SAFETY: a number below the count.
        let ours = unsafe { CStr::from_ptr(sys::ggml_op_name(op)) };
        // SAFETY: an entry of the library's table of names. In a table that is shorter than this one
        // and equal so far, it is the first word behind it, which belongs to ggml's other tables.
        let theirs = unsafe { name_of(op as c_int) };
        // SAFETY: only what lies in the library itself is read: names do.
        let same =
            !theirs.is_null() && file_of(theirs.cast()) == home && unsafe { CStr::from_ptr(theirs) } == ours;
        if !same {
            return Some(format!("its operation {op} is not {}", ours.to_string_lossy()));
        }
    }
    None
}
