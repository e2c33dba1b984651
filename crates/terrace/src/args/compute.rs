//! How the model is computed.

use clap::Args;
use std::path::PathBuf;
use terrace_engine::options::ComputeOptions;

/// How the model is computed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct ComputeArgs {
    /// CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", env = "TERRACE_THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// CPU threads for prompts [default: the value of --threads]
    #[arg(long, value_name = "N", env = "TERRACE_THREADS_BATCH", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads_batch: Option<u32>,
    /// Skip the layers listed in a file from `calibrate-skip` (lossy: faster, but other tokens)
    #[arg(long, value_name = "FILE", env = "TERRACE_LAYER_SKIP")]
    pub layer_skip: Option<PathBuf>,
    /// Let llama.cpp keep all weights in its repacked layouts, as its own programs do: on some
    /// processors this decodes faster; it rounds differently, so tokens differ, and memory must
    /// hold the model twice
    #[arg(long, env = "TERRACE_REPACK", conflicts_with_all = ["ram_budget", "stream", "mmap", "plan", "n_gpu_layers", "cpu_moe", "n_cpu_moe", "rpc", "hot_cache", "override_tensor", "layer_skip", "verify", "replica"])]
    pub repack: bool,
}

impl ComputeArgs {
    /// Converts these to the engine's options. Repacking is part of [`terrace_engine::Mode`].
    pub fn options(&self) -> ComputeOptions {
        let Self { threads, threads_batch, layer_skip, repack: _ } = self;
        ComputeOptions { threads: *threads, threads_batch: *threads_batch, layer_skip: layer_skip.clone() }
    }
}
