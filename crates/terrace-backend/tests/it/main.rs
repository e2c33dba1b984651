//! Tests of the backend under llama.cpp.

#![allow(clippy::print_stderr, reason = "a test says what it could not try")]
#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bundled;

use terrace_test_env as _;
