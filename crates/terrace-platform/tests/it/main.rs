//! Tests of the repository: which files name an operating system.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests read the sources")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod elsewhere;
