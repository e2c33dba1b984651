//! How the model is computed.

use clap::Args;
use std::path::PathBuf;

/// How the model is computed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct ComputeArgs {
    /// Tokens evaluated in one call at most
    #[arg(long, value_name = "TOKENS", env = "TERRACE_BATCH", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
    /// CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", env = "TERRACE_THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Leave out the layers that a file of `calibrate-skip` names: faster, and other tokens
    #[arg(long, value_name = "FILE", env = "TERRACE_LAYER_SKIP")]
    pub layer_skip: Option<PathBuf>,
    /// Have llama.cpp keep the weights of a model that fits twice over in its repacked layouts, as its own programs do: on some
    /// processors it decodes faster then, and other rounding gives other tokens
    #[arg(long, env = "TERRACE_REPACK", conflicts_with_all = ["ram_budget", "manage", "plan", "n_gpu_layers", "rpc", "hot_cache", "override_tensor", "layer_skip", "stock"])]
    pub repack: bool,
}
