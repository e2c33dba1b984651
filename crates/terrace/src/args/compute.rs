//! How the model is computed.

use clap::Args;
use std::path::{Path, PathBuf};
use terrace_engine::options::ComputeOptions;
use terrace_engine::{LossySettings, LossySource};

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
    /// Choose experts that are in memory, drop light ones that are not or read them in fewer bits, skip
    /// layers or use fewer experts (lossy: fewer reads, but other tokens): a file from `calibrate`, or
    /// settings like prior=0.1,keep=1,drop=0.5,low=FILE,skip=3+4,experts=6
    #[arg(long, value_name = "FILE|SETTINGS", env = "TERRACE_LOSSY", value_parser = lossy)]
    pub lossy: Option<LossySource>,
    /// Let llama.cpp keep all weights in its repacked layouts, as its own programs do: on some
    /// processors this decodes faster; it rounds differently, so tokens differ, and memory must
    /// hold the model twice
    #[arg(long, env = "TERRACE_REPACK", conflicts_with_all = ["ram_budget", "stream", "mmap", "plan", "n_gpu_layers", "cpu_moe", "n_cpu_moe", "rpc", "hot_cache", "override_tensor", "layer_skip", "lossy", "verify", "replica"])]
    pub repack: bool,
}

impl ComputeArgs {
    /// Converts these to the engine's options. Repacking is part of [`terrace_engine::Mode`].
    pub fn options(&self) -> ComputeOptions {
        let Self { threads, threads_batch, layer_skip, lossy, repack: _ } = self;
        ComputeOptions {
            threads: *threads,
            threads_batch: *threads_batch,
            layer_skip: layer_skip.clone(),
            lossy: lossy.clone(),
        }
    }
}

/// Reads settings, or else takes the text for a path. Files whose names contain a `=` have to exist.
fn lossy(text: &str) -> Result<LossySource, String> {
    match text.parse::<LossySettings>() {
        Ok(settings) => Ok(LossySource::Settings(settings)),
        Err(reason) if text.contains('=') && !Path::new(text).exists() => Err(reason),
        Err(_) if text.is_empty() => Err("is empty".into()),
        Err(_) => Ok(LossySource::File(text.into())),
    }
}
