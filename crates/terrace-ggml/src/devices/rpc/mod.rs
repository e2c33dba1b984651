//! Devices of other machines, through ggml's RPC backend.
//!
//! ggml ends the process if it cannot talk to a server, so [`add_rpc_server`] talks to it first.

mod cache;
mod client;
mod error;
mod functions;
mod limited;
mod serve;

pub use client::{add_rpc_server, greet_rpc_server, threads_of_devices};
pub use error::RpcError;
pub use serve::{Lent, answer_heartbeats, is_serving, open_cache, serve_rpc};
