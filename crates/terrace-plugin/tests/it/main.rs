//! The plug-in in the smallest host that there is: this process, which has the linked ggml and offers
//! its functions, as a program does whose ggml is part of it.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod architectures;
mod control;
mod copies;
mod host;
mod kernels;
mod lora;
mod memory;
mod settings;
mod symbols;
mod warm;

use terrace_test_env as _;

/// The process of a remote device; see [`terrace_testkit::rpc`].
#[test]
#[ignore = "the process of a device, started by other tests"]
fn rpc_server() {
    terrace_testkit::rpc::serve_as_child();
}
