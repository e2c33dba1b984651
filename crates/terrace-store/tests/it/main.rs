//! Tests of the store on real files.

#![allow(clippy::print_stderr, reason = "a test says what it could not try")]
#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod activity;
mod bundles;
mod common;
mod conformance;
mod errors;
mod kinds;
mod replace;
mod replicas;
mod resize;
mod rows;
mod timeline;
mod tuned;
mod verify;
