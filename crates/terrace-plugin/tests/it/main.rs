//! The plug-in in the smallest host that there is: this process, which has the linked ggml and offers
//! its functions, as a program does whose ggml is part of it.

#![allow(clippy::disallowed_methods, reason = "the plug-in is told things by the environment")]

mod host;
mod maps;
mod symbols;

use terrace_test_env as _;
