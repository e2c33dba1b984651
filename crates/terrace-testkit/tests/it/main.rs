//! Tests of the test kit's models.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod big;
mod common;
mod hostile;
mod released;
mod routing;
mod rpc;
mod stock;

/// Started by `RpcServer::start`.
#[test]
#[ignore = "the devices of other tests, in a process of their own"]
fn rpc_server() {
    terrace_testkit::rpc::serve_as_child();
}
