//! The laboratory: commands that measure, compare and write models, each in a folder with its options in
//! `args` and its output in `show`.

#![allow(clippy::result_large_err, reason = "an error ends the command, so it is made once")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod bench;
pub mod calibrate;
pub mod iobench;
pub mod machine;
pub mod optimize;
pub mod palette;
pub mod perplexity;
#[cfg(test)]
mod program;
pub mod quantize;
pub mod sweep;
pub mod trace;

#[cfg(test)]
use terrace_test_env as _;
