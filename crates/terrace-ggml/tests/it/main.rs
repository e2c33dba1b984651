//! Tests of the FFI layer with ggml itself.

#![allow(clippy::disallowed_methods, reason = "tests are told things by the environment")]
#![allow(clippy::print_stderr, reason = "a test says what it could not try")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod abi;
mod gguf;
mod imatrix;
mod libraries;
mod outputs;
mod pre_tokenizers;
mod specials;
mod staging;
mod tokenize;
mod vocabulary;

use terrace_test_env as _;
