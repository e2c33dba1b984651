//! A plan or the free memory, which the placement follows.

use std::path::PathBuf;
use terrace_host::pressure::Adapt;

/// Inputs that the placement follows: a written plan, or the free memory.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub struct FollowingOptions {
    /// Follow a plan written by `terrace plan --json`, edited or not
    #[arg(long, value_name = "FILE", env = "TERRACE_PLAN", conflicts_with_all = ["ram_budget", "stream", "mmap", "ctx", "kv_type", "cache_type_k", "cache_type_v", "n_gpu_layers", "cpu_moe", "n_cpu_moe", "vram_budget", "vram_reserve", "split_mode"])]
    pub plan: Option<PathBuf>,
    /// Adjust the RAM budget to free memory
    #[arg(long, value_name = "auto|on|off", env = "TERRACE_ADAPT", default_value_t)]
    pub adapt: Adapt,
}
