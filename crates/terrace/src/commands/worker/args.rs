//! The options of `terrace worker`.

use clap::Args;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// `terrace worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Address to listen on: HOST:PORT, or a port of 127.0.0.1; port 0 picks a free one
    #[arg(
        long,
        value_name = "[HOST:]PORT",
        env = "TERRACE_WORKER_LISTEN",
        default_value = "127.0.0.1:50052"
    )]
    pub listen: String,
    /// Listen on an address that other machines reach. ggml's RPC protocol has neither encryption nor
    /// authentication: whoever reaches the port can use this machine's memory and processor, and
    /// crash or take over the worker
    #[arg(long, env = "TERRACE_I_KNOW_THIS_NETWORK_IS_TRUSTED")]
    pub i_know_this_network_is_trusted: bool,
    /// The devices to lend, by ggml's names (`terrace doctor`), separated by commas; CPU is the
    /// processor with its RAM [default: all accelerators, or the CPU if there are none]
    #[arg(long, value_name = "LIST", env = "TERRACE_WORKER_DEVICE", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Memory of each device that clients may use [default: what is free now, less a reserve]
    #[arg(long, value_name = "SIZE", env = "TERRACE_WORKER_MEMORY")]
    pub memory: Option<ByteSize>,
    /// Folder for tensors of more than 10 MiB, which clients then need not send again; off: none
    /// [default: $XDG_CACHE_HOME/terrace/worker/PORT]
    #[arg(long, value_name = "DIR|off", env = "TERRACE_WORKER_CACHE")]
    pub cache: Option<PathBuf>,
    /// CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", env = "TERRACE_THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
}
