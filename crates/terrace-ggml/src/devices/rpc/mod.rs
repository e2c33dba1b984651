//! Devices of other machines, through ggml's RPC backend.
//!
//! ggml ends the process if it cannot talk to a server, and waits for answers for ever, so
//! [`add_rpc_server`] talks to it first (`greeting.rs`), and gives ggml its connection
//! (`introduction.rs`).

mod cache;
mod client;
mod error;
mod functions;
mod greeting;
mod introduction;
mod limited;
mod serve;
mod strangers;
mod wire;

pub use client::{add_rpc_server, greet_rpc_server, threads_of_devices};
pub use error::RpcError;
pub use serve::{Lent, answer_heartbeats, is_serving, open_cache, serve_rpc};
