//! Why a library's devices cannot be used.

use crate::cxx::CxxError;
use std::ffi::c_int;
use std::path::PathBuf;

/// Why a library's devices cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// The dynamic linker cannot load it: it is no library, or one that it needs is missing.
    #[error("{} cannot be loaded: {reason}", path.display())]
    Open {
        path: PathBuf,
        /// The linker's reason, which names what is missing.
        reason: String,
    },
    /// It has no entry of a backend.
    #[error("{} is not a backend of ggml: it has no ggml_backend_init", path.display())]
    NotABackend { path: PathBuf },
    /// It does not tell which ggml it belongs to.
    #[error(
        "{} does not say which ggml it was built for, but this program needs ggml {ours}",
        path.display()
    )]
    NoVersion {
        path: PathBuf,
        /// This program's ggml.
        ours: String,
    },
    /// It was built for another ggml.
    #[error("{} was built for ggml {theirs}, but this program needs ggml {ours}", path.display())]
    Version {
        path: PathBuf,
        /// The library's ggml.
        theirs: String,
        /// This program's ggml.
        ours: String,
    },
    /// Its ggml has the same version, and another layout: a state between two releases.
    #[error("{} was built for another ggml {ours} (commit {commit}): {difference}", path.display())]
    Layout {
        path: PathBuf,
        /// The version of both.
        ours: String,
        /// The library's commit.
        commit: String,
        difference: String,
    },
    /// Its interface has another version.
    #[error("{} has backend API version {theirs}, but this program needs {ours}", path.display())]
    Api {
        path: PathBuf,
        /// The library's version.
        theirs: c_int,
        /// This program's version.
        ours: c_int,
    },
    /// Its code cannot run here.
    #[error("{} does not support this machine", path.display())]
    Unsupported { path: PathBuf },
    /// It found no driver.
    #[error("{} found no driver", path.display())]
    NoDriver { path: PathBuf },
    /// It threw an exception.
    #[error("{} failed to start: {reason}", path.display())]
    Start {
        path: PathBuf,
        /// The exception.
        reason: CxxError,
    },
    /// This program has that backend.
    #[error("{}: this program already has a {backend} backend", path.display())]
    Known {
        path: PathBuf,
        /// ggml's name of the backend.
        backend: String,
    },
}
