//! Terrace as a library for C: `libterrace.so` and `include/terrace.h`, which is generated from here.
//!
//! Each exported function is a thin shell around safe code: it reads its arguments (`edge`), calls one function of
//! `model` or `session`, and turns what goes wrong into a status and a line (`failure`). `unsafe` is in `edge`
//! and in the shells (`exports`).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod answer;
mod edge;
mod exports;
mod failure;
mod model;
mod options;
mod program;
mod session;
mod status;

pub use exports::*;
pub use model::ModelHandle;
pub use session::SessionHandle;
pub use status::{ABI_VERSION, Status};

#[cfg(test)]
use terrace_test_env as _;
