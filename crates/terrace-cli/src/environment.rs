//! The environment, which only the program reads: libraries are given what the user set.

#![expect(clippy::disallowed_methods, reason = "this is where the environment is read")]

use std::env::{VarError, VarsOs};
use std::ffi::{OsStr, OsString};

/// Returns a variable's value as text.
///
/// # Errors
/// [`VarError`]: it is not set, or not UTF-8.
pub fn var(name: impl AsRef<OsStr>) -> Result<String, VarError> {
    std::env::var(name)
}

/// Returns a variable's value; `None` means that it is not set.
pub fn var_os(name: impl AsRef<OsStr>) -> Option<OsString> {
    std::env::var_os(name)
}

/// Returns all variables.
pub fn vars_os() -> VarsOs {
    std::env::vars_os()
}
