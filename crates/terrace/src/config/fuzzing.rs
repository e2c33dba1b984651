//! The layers of configuration, without the environment and the files of a user.

use super::file::values_of;
use super::rewrite::rewrite;
use crate::cli::Cli;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::path::Path;
use terrace_cli::preset;

/// Reads a command line, a word a line.
///
/// # Panics
/// A refusal has no reason.
pub fn words(text: &str) {
    let words = std::iter::once("terrace").chain(text.lines()).map(OsString::from);
    match rewrite(&Cli::command(), words.collect()) {
        // Only what was parsed counts: nothing runs.
        Ok(rewritten) => drop(Cli::try_parse_from(rewritten.words)),
        Err(refused) => assert!(!refused.refusal.why.is_empty() && !refused.refusal.hint.is_empty()),
    }
}

/// Reads a configuration file.
///
/// # Panics
/// An error is not one line.
pub fn file(text: &str) {
    match values_of(Path::new("config.toml"), text) {
        Ok((_, warnings)) => assert!(warnings.iter().all(|warning| !warning.contains('\n')), "{warnings:?}"),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Reads a file of presets.
///
/// # Panics
/// An error is not one line.
pub fn preset(text: &str) {
    if let Err(error) = preset::read_text(text) {
        assert!(!error.contains('\n'), "{error}");
    }
}
