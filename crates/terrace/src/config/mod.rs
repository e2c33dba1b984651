//! Flags, then environment, then configuration file, then defaults.
//!
//! The file's values become clap's default values, so that all layers are read by the same parsers. What is in the
//! file or the environment and means nothing is reported with the nearest name that would.

mod aliases;
mod file;
mod layers;
mod names;
pub mod preset;
mod rewrite;

pub use layers::{ParseError, parse};
