//! Parts that the program's commands share: options, errors and hints, reports, the sources of models, and
//! the terminal.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod advice;
pub mod args;
pub mod environment;
pub mod error;
pub mod hotswap_env;
mod http;
pub mod loading;
pub mod no_effect;
pub mod preset;
pub mod remote;
pub mod report;
pub mod source;
pub mod term;
pub mod user_dirs;
pub mod whole_file;
pub mod written;

#[cfg(test)]
use terrace_test_env as _;
