//! Tests of whole models.

#![allow(clippy::print_stderr, reason = "a test says what it could not try")]
#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod adapters;
mod architectures;
mod budgets;
mod bundled;
mod drafts;
mod embeddings;
mod exactness;
mod fast;
mod hot_divided;
mod hot_experts;
mod hot_kept;
mod hot_lost;
mod hot_prefill;
mod hot_sent;
mod kv_types;
mod made;
mod mapped;
mod mtp;
mod observers;
mod pieces;
mod positions;
mod reload;
mod reload_budget;
mod reload_devices;
#[cfg(unix)]
mod reload_files;
mod reload_hot;
mod reload_split;
mod reload_trained;
mod reloading;
mod row_tables;
mod sessions;
mod small_budgets;
mod splits;
mod vision;

/// Started by `RpcServer::start`.
#[test]
#[ignore = "started by other tests as an RPC server"]
fn rpc_server() {
    terrace_testkit::rpc::serve_as_child();
}
